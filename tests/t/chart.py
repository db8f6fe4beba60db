"""A picture of some figures, as SVG."""

import math

WIDTH, HEIGHT, LEFT, TOP, BELOW = 240, 200, 50, 40, 40
COLOURS = ["#1b6ca8", "#8a8a8a", "#c0392b", "#d68910", "#1e8449"]


def panel(at, title, below, lines, colours):
    """One figure. Both axes are logarithmic."""
    points = [point for line in lines.values() for point in line]
    least, most = ([function(point[axis] for point in points) for axis in (0, 1)] for function in (min, max))
    span = [math.log(max(most[axis] / least[axis], 1.01)) for axis in (0, 1)]

    def place(x, y):
        right, up = math.log(x / least[0]) / span[0], math.log(y / least[1]) / span[1]
        return f"{LEFT + right * WIDTH:.1f}", f"{TOP + (1 - up) * HEIGHT:.1f}"

    parts = [f'<g transform="translate({at},0)">', f'<text x="{LEFT}" y="{TOP - 15}">{title}</text>']
    parts.append(f'<path d="M{LEFT} {TOP}V{TOP + HEIGHT}H{LEFT + WIDTH}" stroke="#333" fill="none"/>')
    for x in sorted({point[0] for point in points}):
        right, _ = place(x, least[1])
        parts.append(f'<text x="{right}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{x}</text>')
    for y in (least[1], math.sqrt(least[1] * most[1]), most[1]):
        _, down = place(least[0], y)
        parts.append(f'<text x="{LEFT - 5}" y="{down}" text-anchor="end">{y:.3g}</text>')
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 32}" text-anchor="middle">{below}</text>')
    for name, line in lines.items():
        path = " ".join(",".join(place(*point)) for point in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        for right, down in (place(*point) for point in line):
            parts.append(f'<circle cx="{right}" cy="{down}" r="3" fill="{colours[name]}"/>')
    return parts + ["</g>"]


def chart(panels):
    """Panels side by side, each a title, what its numbers count, and lines by name, with a legend."""
    panels = [each for each in panels if each[2]]
    names = list(dict.fromkeys(name for _, _, lines in panels for name in lines))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    width, height = len(panels) * (WIDTH + LEFT + 20) + 10, TOP + HEIGHT + BELOW + 25
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"']
    parts.append(' font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>')
    for at, (title, below, lines) in enumerate(panels):
        parts += panel(at * (WIDTH + LEFT + 20), title, below, lines, colours)
    for at, name in enumerate(names):
        x, y = LEFT + at * 150, height - 10
        parts.append(f'<path d="M{x} {y - 4}h20" stroke="{colours[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 25}" y="{y}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"

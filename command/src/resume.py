"""Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Read by flux-uri(1).

The broker of a nested instance reaches its parent by a resume:// URI, and `flux uri ..` would say that
one. Commands that take a URI (proxy, top, shutdown) know local:// and ssh:// only, so they are told
the same socket as local://."""

from urllib.parse import urlparse

from flux.uri import JobURI, URIResolverPlugin

SCHEME = "resume"


def as_local(uri):
    parts = urlparse(uri)
    return f"local://{parts.path}" if parts.scheme == SCHEME else uri


def read_resume(init):
    """JobURI's constructor, for resume:// as well. It refuses to convert any scheme but its own two."""

    def read(self, uri, *args, **kwargs):
        init(self, as_local(uri), *args, **kwargs)

    return read


JobURI.__init__ = read_resume(JobURI.__init__)


class URIResolver(URIResolverPlugin):
    """What flux-uri(1) calls for resume://PATH."""

    def describe(self):
        return "Get the local URI for a URI of the resume connector"

    def resolve(self, uri):
        return "local:///" + uri.path.lstrip("/")

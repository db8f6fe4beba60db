"""usage: parent-uri.py DIRECTORY

Runs in a nested instance. Says what flux-uri(1) would, with the resolvers below DIRECTORY as if they
were installed, and the size of the parent instance, by two ways to it."""

import subprocess
import sys

import flux.uri
from flux.uri import FluxURIResolver

flux.uri.__path__.append(sys.argv[1])


def size(*command):
    command = ["flux", *command, "getattr", "size"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


resolver = FluxURIResolver()
for text in ("..", "..?local", "..?remote", "/"):
    print(f"{text}={resolver.resolve(text)}")
parent = flux.Flux().attr_get("parent-uri")
print(f"proxy={size('proxy', str(resolver.resolve(parent)), 'flux')}")
print(f"parent={size('--parent')}")

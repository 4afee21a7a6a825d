"""The two apps of Flower's that play a run of paperlib; see docs/flower.md."""

from paperlib.flower import client_app, server_app

server = server_app()
client = client_app()

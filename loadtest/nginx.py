"""nginx in front of the instances: round robin, nothing replayed, everything inside one directory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

from loadtest.child import StackError

CONFIGURATION = Template("""\
daemon off;
# One process, ours: there is no user to switch to, also when root runs the demo.
master_process off;
pid "$directory/nginx.pid";
error_log "$directory/nginx.log";
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path "$directory/client_body";
    proxy_temp_path "$directory/proxy";
    fastcgi_temp_path "$directory/fastcgi";
    uwsgi_temp_path "$directory/uwsgi";
    scgi_temp_path "$directory/scgi";

    upstream shop {
        # max_fails=0: an instance is never left out because it was slow once.
$servers
        keepalive 64;
        # Shorter than gunicorn's, so that a connection is never used while gunicorn closes it.
        keepalive_timeout 30s;
    }
    server {
        listen 127.0.0.1:$port;
        location / {
            proxy_pass http://shop;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $$host;
            # A purchase that failed half-way is told to the buyer, never sent again to the other instance.
            proxy_next_upstream off;
            # Longer than the longest wait for a lock.
            proxy_read_timeout 60s;
        }
$more
    }
}
""")


def find_nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise StackError(
            "nginx is not installed. Run: apt-get install nginx-light (or scripts/demo, which does)."
        )
    return found


SALES = Template("""\
        location /sale {
            proxy_pass http://127.0.0.1:$port;
        }
""")


def configure(directory: Path, port: int, upstreams: Sequence[int], sales: int = 0) -> list[str]:
    """Write the configuration; the command that serves it. *sales*: the port of `loadtest.sale_server`."""
    servers = "\n".join(f"        server 127.0.0.1:{upstream} max_fails=0;" for upstream in upstreams)
    file = directory / "nginx.conf"
    more = SALES.substitute(port=sales) if sales else ""
    file.write_text(CONFIGURATION.substitute(directory=directory, port=port, servers=servers, more=more))
    # -e: nginx opens its built-in error log before it reads where we want it.
    return [find_nginx(), "-p", str(directory), "-e", str(directory / "nginx.log"), "-c", str(file)]

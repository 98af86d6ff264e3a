"""A web server on this machine that publishes small files in the place of the real ones."""

import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from graphact_lab.data.sources import DATASETS, DataFile

RATINGS, TITLES, ARCHIVE, COORDINATES = b"1\t1\t5\t0\n" * 9000, b"1|A film\n", b"tar" * 50000, b"number,name\n"
CITATIONS = b"1 cites 2\n"
NODES = b"a file of features, classes and edges"


def zip_of(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


class Server:
    """A web server on this machine: ``pages`` maps paths to content, ``promised`` to wrong lengths."""

    def __init__(self):
        self.pages, self.promised, self.asked = {}, {}, []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                if self.path not in server.pages:
                    self.send_error(404)
                    return
                content = server.pages[self.path]
                self.send_response(200)
                length = server.promised.get(self.path, len(content))
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def publish(monkeypatch, url):
    """Put small files at another address in the place of the real ones."""

    def file(path, content, page, member=""):
        return DataFile(path, hashlib.sha256(content).hexdigest(), f"{url}/{page}", member)

    members = {"ml-100k/u.data": RATINGS, "ml-100k/u.item": TITLES}
    films = tuple(file(path, content, "ml-100k.zip", path) for path, content in members.items())
    pages = {"RADOMEH.tar.gz": ARCHIVE, "weather_stations.csv": COORDINATES}
    weather = tuple(file(f"molene/{page}", content, page) for page, content in pages.items())
    monkeypatch.setitem(DATASETS, "ml-100k", films)
    monkeypatch.setitem(DATASETS, "molene", weather)
    citations = (file("planetoid/ind.cora.graph", CITATIONS, "ind.cora.graph"),)
    monkeypatch.setitem(DATASETS, "planetoid", citations)
    for dataset, page in (("heterophily", "wisconsin.npz"), ("attributed", "Flickr.mat"), ("tu", "NCI1_splits.json")):
        monkeypatch.setitem(DATASETS, dataset, (file(f"{dataset}/{page}", NODES, page),))

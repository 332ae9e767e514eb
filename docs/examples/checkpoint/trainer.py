"""A trainer that saves its work before it is moved: 20 lines, nothing but Python."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

saved = set()  # migrations for which a checkpoint is written


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["event"] == "before-move" and asked["migration"] not in saved:
            # torch.save(...) here; it has until asked["deadline"]. Repeated questions have the same migration.
            saved.add(asked["migration"])
        print(asked["event"], asked["pod"], "to", asked["target"], flush=True)
        answer = json.dumps({"allowed": True, "reason": "saved step 4000"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


HTTPServer(("127.0.0.1", 18123), Hook).serve_forever()

"""Gets URL with requests and prints {"status", "reason", "text"}."""

import json
import sys

import requests

response = requests.get(sys.argv[1], timeout=60)
print(json.dumps({"status": response.status_code, "reason": response.headers.get("exeat-reason"), "text": response.text}))

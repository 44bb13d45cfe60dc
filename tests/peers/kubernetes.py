"""Holds the documents of YAML files to the schemas of Kubernetes, and prints them as JSON.

python kubernetes.py VERSION FILE...: a document with a field that the schema does not know, or without one that it asks
for, ends it with 1.
"""

import json
import sys

import kubernetes_validate
import yaml

version, *files = sys.argv[1:]
documents = []
for file in files:
    with open(file, encoding="utf-8") as text:
        for document in yaml.safe_load_all(text):
            kubernetes_validate.validate(document, version, strict=True)
            documents.append(document)
json.dump(documents, sys.stdout)

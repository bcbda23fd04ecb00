"""Fails if a dependency needs a newer Rust than this workspace declares."""

import json
import subprocess
import sys

METADATA = ["cargo", "metadata", "--format-version", "1", "--locked"]


def version(text):
    return [int(part) for part in text.split(".")]


packages = json.loads(subprocess.check_output(METADATA))["packages"]
ours = min((p["rust_version"] for p in packages if p["source"] is None), key=version)
needed = [p for p in packages if p["rust_version"]]
newer = [p for p in needed if version(p["rust_version"]) > version(ours)]
for p in newer:
    print(f"{p['name']} {p['version']} needs Rust {p['rust_version']}, newer than the supported {ours}")
print(f"{len(needed)} of {len(packages)} packages declare the Rust they need; {len(newer)} need more than {ours}")
sys.exit(bool(newer))

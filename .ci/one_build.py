"""Fails if `cargo run` needs a dependency in another form than `cargo test --workspace`: a feature that only one turns on."""

import json
import subprocess
import sys

FORMAT = ["--message-format", "json"]
TESTS = ["cargo", "test", "--workspace", "--no-run", *FORMAT]
BINARY = ["cargo", "build", "--bin", "foretide", *FORMAT]


def built(command):
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    messages = [json.loads(line) for line in lines if line.startswith(b"{")]
    return [m for m in messages if m["reason"] == "compiler-artifact"]


of_tests = {name for m in built(TESTS) for name in m["filenames"]}
of_binary = built(BINARY)
others = [m for m in of_binary if not of_tests.issuperset(m["filenames"])]
for m in others:
    print(f"{m['package_id']} is built twice; for `cargo run` with the features {m['features']}")
if others:
    print("name the features that tests turn on in tests/rig/Cargo.toml")
print(f"{len(of_binary) - len(others)} of {len(of_binary)} packages of the binary are those of the tests")
sys.exit(bool(others))

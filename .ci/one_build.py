"""Fails if `cargo run` compiles anything again after `cargo test --workspace`: a feature that only one of them turns on."""

import json
import subprocess
import sys

BUILD = ["cargo", "build", "--bin", "foretide", "--message-format", "json"]

lines = subprocess.run(BUILD, stdout=subprocess.PIPE, check=True).stdout.splitlines()
built = [m for m in map(json.loads, lines) if m["reason"] == "compiler-artifact"]
again = [m for m in built if not m["fresh"]]
for m in again:
    print(f"{m['package_id']} was built again, with the features {m['features']}")
if again:
    print("add the features that tests turn on to tests/rig/Cargo.toml")
print(f"{len(built) - len(again)} of {len(built)} packages are those of the tests")
sys.exit(bool(again))

//! The command, as a process.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::process::Command;

/// Standard output of a run that succeeds.
fn output(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_foretide-servers"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn each_server_has_its_help() {
    assert!(output(&["--help"]).contains("keda-scaler"));
    assert!(output(&["adapter", "--help"]).contains("--upstream-url"));
    assert!(output(&["keda-scaler", "--help"]).contains("--client-ca-file"));
}

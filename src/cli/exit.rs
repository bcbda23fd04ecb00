//! Exit codes, one meaning each, and the last words that go with them.

use std::process::ExitCode;

/// Everything went well.
pub(crate) const OK: ExitCode = ExitCode::SUCCESS;

/// A runtime error.
pub(crate) fn failed(message: &str) -> ExitCode {
    last_words(message);
    ExitCode::from(1)
}

/// Arguments that cannot be used.
pub(crate) fn usage(message: &str) -> ExitCode {
    last_words(message);
    ExitCode::from(2)
}

/// Input files that are not valid.
pub(crate) fn invalid(message: &str) -> ExitCode {
    last_words(message);
    ExitCode::from(3)
}

fn last_words(message: &str) {
    eprintln!("foretide: {message}");
}

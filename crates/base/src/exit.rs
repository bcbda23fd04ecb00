//! Exit codes, one meaning each, and the error line that goes with them.

use std::io::Write as _;
use std::process::ExitCode;

use crate::printable;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Success: 0.
    #[default]
    Ok = 0,
    /// Something outside the program failed, such as a cluster that cannot be reached: 1.
    Runtime = 1,
    /// The command line is invalid: 2, as in clap.
    Usage = 2,
    /// A file is invalid: 3.
    Invalid = 3,
    /// A bound of `--fail-if` is exceeded: 4.
    Threshold = 4,
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Success.
pub const OK: ExitCode = ExitCode::SUCCESS;

/// A runtime error.
pub fn failed(message: &str) -> ExitCode {
    print_error(message);
    Exit::Runtime.into()
}

/// Arguments that cannot be used.
pub fn usage(message: &str) -> ExitCode {
    print_error(message);
    Exit::Usage.into()
}

/// Prints an error on standard error; a closed standard error is ignored.
pub fn print_error(message: &str) {
    let message = printable::lines(message, &[]);
    let _printed = writeln!(std::io::stderr().lock(), "foretide: {message}").is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exit_has_its_code() {
        for (exit, code) in [
            (Exit::Ok, 0),
            (Exit::Runtime, 1),
            (Exit::Usage, 2),
            (Exit::Invalid, 3),
            (Exit::Threshold, 4),
        ] {
            assert_eq!(ExitCode::from(exit), ExitCode::from(code), "{exit:?}");
        }
    }
}

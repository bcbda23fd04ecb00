//! The limit of open files of this process. Every connection is an open file. A process at its limit can neither open a
//! connection nor read a certificate.

use rustix::{
    io,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// The open files of a hub with a hundred members, with forty connections each: seven watches, and requests in flight.
const ENOUGH: u64 = 4096;

/// Raises the limit to what the system allows, as programs in Go do, and warns if that may be too low.
///
/// Many systems set a low soft limit for programs that use `select`, and a high hard limit up to which a process may raise
/// it.
pub fn raise_limit() {
    let limit = raise(getrlimit(Resource::Nofile), |limit| {
        setrlimit(Resource::Nofile, limit)
    });
    if let Some(limit) = limit.filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            limit,
            expected = ENOUGH,
            "the limit of open files is low: connections to the API server, to members and to Prometheus may fail; raise \
             the hard limit (`ulimit -Hn`) of the container runtime or of the service"
        );
    }
}

/// Raises the soft limit to the hard limit with `set`. Returns the limit in force; none if there is no limit.
fn raise(before: Rlimit, set: impl FnOnce(Rlimit) -> io::Result<()>) -> Option<u64> {
    let (soft, hard) = (before.current, before.maximum);
    let raised = Rlimit {
        current: hard,
        ..before
    };
    if set(raised).is_ok() { hard } else { soft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_limit_if_the_system_allows_it() {
        let refused = Err(io::Errno::PERM);
        for (hard, outcome, in_force) in [
            (Some(4096), Ok(()), Some(4096)),
            (Some(4096), refused, Some(1024)),
            (None, Ok(()), None),
            (None, refused, Some(1024)),
        ] {
            let before = Rlimit {
                current: Some(1024),
                maximum: hard,
            };
            let limit = raise(before, |raised| {
                assert_eq!((raised.current, raised.maximum), (hard, hard));
                outcome
            });
            assert_eq!(limit, in_force, "hard limit {hard:?}, {outcome:?}");
        }
    }
}

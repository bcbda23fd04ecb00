//! The limit of open files of this process. Every connection is one, and a process that has none left can neither open a
//! connection nor read a certificate.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The files of a hub with a hundred members, at forty connections each: seven watches, and requests in flight.
const ENOUGH: u64 = 4096;

/// Raises the limit to what the system allows, as programs in Go do, and warns if that may be too low.
///
/// Many systems set a low limit for programs that use `select`, and a high one up to which a process may raise it.
pub(crate) fn raise_limit() {
    let limit = raised_limit();
    if let Some(limit) = limit.filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            limit,
            expected = ENOUGH,
            "the limit of open files is low: connections to the API server, to members and to Prometheus may fail; raise \
             the hard limit (`ulimit -Hn`) of the container runtime or of the service"
        );
    }
}

/// The limit, after it was raised if that is possible; absent if there is none.
fn raised_limit() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => before.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        let limit = getrlimit(Resource::Nofile);
        let allowed = limit.maximum.unwrap();
        let low = Rlimit {
            current: Some(allowed - 1),
            ..limit
        };
        setrlimit(Resource::Nofile, low).unwrap();
        assert_eq!(raised_limit(), Some(allowed));
        assert_eq!(getrlimit(Resource::Nofile).current, Some(allowed));
    }
}

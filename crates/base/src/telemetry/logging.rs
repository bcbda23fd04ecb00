//! The log: its filter, its form, and where it goes.

use std::io::Write;

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{
        self, SubscriberBuilder,
        format::{DefaultFields, Format},
        writer::BoxMakeWriter,
    },
};

use crate::printable::RecordWriter;

/// A log filter that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--log expects levels such as info or foretide=debug,warn, got {filter:?}")]
pub struct BadFilter {
    filter: String,
    #[source]
    source: ParseError,
}

/// Starts logging to standard error, as lines for people or as JSON; once per process. A record is one line, without
/// control characters.
///
/// # Errors
/// [`BadFilter`], before anything is logged.
pub fn start_logging(filter: &str, json: bool) -> Result<(), BadFilter> {
    let subscriber = records(filter, std::io::stderr)?;
    let started = if json {
        subscriber.json().try_init()
    } else {
        subscriber.try_init()
    };
    if started.is_err() {
        tracing::debug!("logging was already started");
    }
    Ok(())
}

/// Returns the same log with another destination; the caller decides for which tasks it is in force.
///
/// # Errors
/// As [`start_logging`].
pub fn log_to<W: Write + 'static>(
    filter: &str,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Result<Dispatch, BadFilter> {
    Ok(records(filter, writer)?.into())
}

fn records<W: Write + 'static>(
    filter: &str,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Result<SubscriberBuilder<DefaultFields, Format, EnvFilter, BoxMakeWriter>, BadFilter> {
    // The client library logs each failed request as an error without its object; Foretide logs it with the object.
    let filter =
        EnvFilter::try_new(format!("kube_client=off,{filter}")).map_err(|source| BadFilter {
            filter: filter.to_owned(),
            source,
        })?;
    let writer = BoxMakeWriter::new(move || RecordWriter(writer()));
    Ok(fmt::fmt().with_env_filter(filter).with_writer(writer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_filter_is_rejected_with_an_example() {
        let error = start_logging("foretide=loud", false).unwrap_err();
        assert!(error.to_string().contains("foretide=debug"), "{error}");
    }
}

//! Parsers of the values of single flags. Each error is one sentence with an example; clap adds the flag and the value.

use foretide_domain::cron::Zone;
use jiff::SignedDuration;

use super::AdapterConfigSource;

/// A duration such as `15s`, `5m` or `1h 30m`.
///
/// # Errors
/// The text is no duration.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    text.parse()
        .map_err(|_| format!("expected a duration such as 15s or 5m, got {text:?}"))
}

/// A duration longer than zero.
pub fn positive(text: &str) -> Result<SignedDuration, String> {
    let span = parse_duration(text)?;
    if !span.is_positive() {
        return Err("expected a duration longer than zero, for example 15s".to_owned());
    }
    Ok(span)
}

/// A duration of zero or longer.
pub fn not_negative(text: &str) -> Result<SignedDuration, String> {
    let span = parse_duration(text)?;
    if span.is_negative() {
        return Err("expected a duration of zero or more, for example 5m".to_owned());
    }
    Ok(span)
}

/// A zone of the bundled database.
///
/// # Errors
/// The text is no IANA name.
pub fn parse_zone(text: &str) -> Result<Zone, String> {
    Zone::parse(text, &Zone::utc())
        .map_err(|_| format!("expected an IANA time zone such as Europe/Prague, got {text:?}"))
}

/// A ratio of at least 0.
pub fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio >= 0.0 => Ok(ratio),
        _ => Err("expected a ratio of at least 0, for example 0.1".to_owned()),
    }
}

/// The label of the Secrets of members: `KEY=VALUE`, or `KEY`.
///
/// # Errors
/// The text is no label.
pub fn member_label(text: &str) -> Result<String, String> {
    let plain = |part: &str, more: &[u8]| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.contains(&b);
        part.bytes().all(allowed)
    };
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() || !plain(key, b"/") || !plain(value, b"") {
        return Err("expected KEY=VALUE or KEY".to_owned());
    }
    Ok(text.to_owned())
}

/// A label name that Prometheus accepts; not a reserved one, nor one that holds the namespace or the pod.
pub fn cluster_label(text: &str) -> Result<String, String> {
    let is_name = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !is_name || text.starts_with("__") || ["namespace", "pod"].contains(&text) {
        return Err(
            "expected the name of a label such as cluster, other than a namespace's".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A `ConfigMap` with rules of prometheus-adapter: `NAMESPACE/NAME` or `NAMESPACE/NAME/KEY`.
pub fn config_map(text: &str) -> Result<AdapterConfigSource, String> {
    let (namespace, name, key) = match text.split('/').collect::<Vec<_>>()[..] {
        // The key in the `ConfigMap` of prometheus-adapter's chart.
        [namespace, name] => (namespace, name, "config.yaml"),
        [namespace, name, key] => (namespace, name, key),
        _ => ("", "", ""),
    };
    if [namespace, name, key].contains(&"") {
        return Err("expected NAMESPACE/NAME or NAMESPACE/NAME/KEY".to_owned());
    }
    Ok(AdapterConfigSource::ConfigMap {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    })
}

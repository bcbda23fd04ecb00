//! The headers in which a front proxy names the user of a request.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName};

use super::attributes::percent_decoded;
use foretide_api::ports::{RequestHeader, User};

/// Default prefix of the names of such headers.
const STANDARD_PREFIX: &str = "x-remote-";

/// The user that the headers of a front proxy name; none without a name.
pub fn user(headers: &HeaderMap, names: &RequestHeader) -> Option<User> {
    Some(User {
        name: values(headers, &names.username_headers).next()?,
        uid: values(headers, &names.uid_headers).next(),
        groups: values(headers, &names.group_headers).collect(),
        extra: extra(headers, &names.extra_header_prefixes),
    })
}

/// Removes the headers that name a user.
pub fn remove(headers: &mut HeaderMap, names: &RequestHeader) {
    let whole = [
        &names.username_headers,
        &names.uid_headers,
        &names.group_headers,
    ];
    for name in whole.into_iter().flatten() {
        headers.remove(name.as_str());
    }
    for prefix in &names.extra_header_prefixes {
        remove_prefix(headers, &prefix.to_ascii_lowercase());
    }
}

/// Removes the headers that name a user by default, also where others are configured.
pub fn remove_standard(headers: &mut HeaderMap) {
    remove_prefix(headers, STANDARD_PREFIX);
}

fn remove_prefix(headers: &mut HeaderMap, prefix: &str) {
    if prefix.is_empty() {
        // It would match every header.
        return;
    }
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(prefix))
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// The values of these headers that are text and not empty.
fn values(headers: &HeaderMap, names: &[String]) -> impl Iterator<Item = String> {
    names
        .iter()
        .flat_map(|name| texts(headers, name))
        .filter(|text| !text.is_empty())
}

/// The values of a header that are text.
fn texts(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| String::from_utf8(value.as_bytes().to_vec()).ok())
        .collect()
}

/// The fields whose headers begin with one of these prefixes. The rest of a name is the key, percent-encoded.
fn extra(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()) {
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(&prefix) else {
                continue;
            };
            // A key that is not percent-encoded counts as it is, as in Go.
            let key = percent_decoded(key).unwrap_or_else(|| key.to_owned());
            extra
                .entry(key)
                .or_default()
                .extend(texts(headers, name.as_str()));
        }
    }
    extra
}

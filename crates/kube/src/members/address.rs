//! Addresses of API servers that a kubeconfig may name.
//!
//! A kubeconfig comes from outside, so link-local and metadata addresses are always rejected, and this machine's own
//! unless they are allowed. Names are checked as they are written and never resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Url;

/// Longest URL that is read.
const URL_MAX: usize = 2048;

/// Addresses of cloud metadata services that are not link-local: Alibaba Cloud, Oracle Cloud, AWS over IPv6.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Parses the URL of an API server.
///
/// # Errors
/// The reason why the controller must not connect to it, and what is expected.
pub fn parse_server(text: &str, allow_loopback: bool) -> Result<Url, &'static str> {
    if text.len() > URL_MAX {
        return Err("is longer than 2048 characters; give the URL of the API server");
    }
    let url = Url::parse(text).map_err(|_| "is not a URL; expected https://HOST[:PORT]")?;
    if url.scheme() != "https" {
        return Err("is not encrypted; expected https://HOST[:PORT]");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name or password; give a token or a client certificate instead");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment; expected https://HOST[:PORT][/PATH]");
    }
    let host = url.host_str().unwrap_or_default();
    forbidden_host(host, allow_loopback).map_or(Ok(()), Err)?;
    Ok(url)
}

/// Reason why a host must not be connected to; `host` is in the form of the URL parser.
fn forbidden_host(host: &str, allow_loopback: bool) -> Option<&'static str> {
    // The URL parser has already turned `2130706433` and `0x7f.1` into 127.0.0.1.
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) => forbidden_address(address, allow_loopback),
        Err(_) => forbidden_name(host, allow_loopback),
    }
}

/// Reason why an address must not be connected to.
fn forbidden_address(written: IpAddr, allow_loopback: bool) -> Option<&'static str> {
    // `::ffff:169.254.169.254` is an IPv4 address.
    let address = written.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let unspecified = match address {
        // Linux connects to 0.0.0.0 as to this machine; all of 0.0.0.0/8 means "this network" (RFC 1122).
        IpAddr::V4(v4) => v4.octets().first() == Some(&0) || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    if link_local || METADATA.contains(&address) {
        Some("is a link-local or metadata address; give the address of an API server")
    } else if unspecified || address.is_multicast() {
        Some("is not the address of a machine; give the address of an API server")
    } else if address.is_loopback() && !allow_loopback {
        Some("is this machine's own address; give one that is reachable from the hub")
    } else {
        None
    }
}

/// Reason why a name must not be connected to.
fn forbidden_name(host: &str, allow_loopback: bool) -> Option<&'static str> {
    let name = host.trim_end_matches('.');
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Some("has no valid host name; expected letters, digits, '-' and '.'");
    }
    if matches!(name, "metadata" | "metadata.google.internal") {
        return Some("is a metadata server; give the address of an API server");
    }
    let local = name == "localhost" || name.ends_with(".localhost");
    (local && !allow_loopback)
        .then_some("is this machine's own name; give one that is reachable from the hub")
}

/// True for a part of a DNS name.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_needs_https_and_a_reachable_name_or_address() {
        for good in [
            "https://member1.example",
            "https://member1.example:6443/",
            "https://10.0.0.1:6443",
            "https://[fd00::1]:6443",
            "https://hub.example/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/",
        ] {
            assert!(parse_server(good, false).is_ok(), "{good}");
        }
        for (bad, word) in [
            ("", "not a URL"),
            ("member1.example:6443", "not encrypted"),
            ("http://member1.example", "not encrypted"),
            ("file:///etc/passwd", "not encrypted"),
            ("https://", "not a URL"),
            ("https://me@member1.example", "user name"),
            ("https://me:secret@member1.example", "user name"),
            ("https://member1.example/?token=x", "query"),
            ("https://member1.example/#x", "query"),
            ("https://under_score.example", "host name"),
            ("https://-a.example", "host name"),
            ("https://a..example", "host name"),
            ("https://169.254.169.254", "metadata"),
            ("https://0xa9fea9fe", "metadata"),
            ("https://2852039166/latest", "metadata"),
            ("https://[fe80::1]", "metadata"),
            ("https://[::ffff:169.254.169.254]", "metadata"),
            ("https://[fd00:ec2::254]", "metadata"),
            ("https://100.100.100.200", "metadata"),
            ("https://metadata.google.internal", "metadata"),
            ("https://METADATA.google.internal.", "metadata"),
            ("https://0.0.0.0:6443", "not the address"),
            ("https://[::]:6443", "not the address"),
            ("https://224.0.0.1", "not the address"),
            ("https://127.0.0.1:6443", "own address"),
            ("https://127.1:6443", "own address"),
            ("https://[::1]:6443", "own address"),
            ("https://localhost:6443", "own name"),
            ("https://a.localhost:6443", "own name"),
        ] {
            let why = parse_server(bad, false).unwrap_err();
            assert!(why.contains(word), "{bad}: {why}");
        }
        assert!(parse_server(&format!("https://{}", "a".repeat(3000)), false).is_err());
    }

    #[test]
    fn this_machine_is_rejected_unless_loopback_is_allowed() {
        for local in [
            "https://127.0.0.1:6443",
            "https://[::1]:1",
            "https://localhost:1",
        ] {
            assert!(parse_server(local, true).is_ok(), "{local}");
        }
        assert!(parse_server("https://169.254.169.254", true).is_err());
    }
}

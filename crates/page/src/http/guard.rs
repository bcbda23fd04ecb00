//! Checks before every request of the page: nothing that another site causes gets an answer where no token is asked
//! for, and every answer has the headers that keep it from being used by other sites.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::Refusal;

/// Scripts, styles and data of this origin only; no page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer that does not set them itself.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Refuses requests that another site causes, and completes the headers of the answer. A page that is open to everyone
/// on this machine answers only to the names of this machine, so that no foreign name that resolves to it can be used
/// to read it.
pub async fn guard(is_open: bool, request: Request, next: Next) -> Response {
    let mut response = match refused(is_open, request.uri(), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

fn refused(is_open: bool, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
    let host = host(uri, headers);
    if is_open && !host.as_ref().is_some_and(is_this_machine) {
        return Some(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            "expected the host localhost or a loopback address; open the page by the address that was printed",
        ));
    }
    is_foreign(is_open, host.as_ref(), uri, headers).then(|| {
        Refusal::forbidden(
            "the request comes from another site; open the page in a window of its own",
        )
    })
}

/// The host that the client asks for. A whole address and the header, of which there is one at most, must agree.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), others) = (hosts.next(), hosts.count()) else {
        return uri.authority().cloned();
    };
    let host: Authority = host.to_str().ok()?.parse().ok()?;
    let agrees = uri.authority().is_none_or(|whole| *whole == host);
    // `Authority` accepts `USER@HOST`, which no `Host` header has (RFC 9110, 7.2).
    let is_host = others == 0 && !host.as_str().contains('@');
    (is_host && agrees).then_some(host)
}

fn is_this_machine(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns whether another site caused the request. A link to the page itself may be anywhere.
///
/// Browsers say so in `Sec-Fetch-Site`, which no script can set, or otherwise in `Origin`. A repeated header is of no
/// browser.
fn is_foreign(is_open: bool, host: Option<&Authority>, uri: &Uri, headers: &HeaderMap) -> bool {
    match values(headers, "sec-fetch-site")[..] {
        [] => {}
        [site] => {
            let is_link =
                uri.path() == "/" && values(headers, "sec-fetch-mode")[..] == [b"navigate"];
            return !(is_link || [&b"same-origin"[..], b"none"].contains(&site));
        }
        _ => return true,
    }
    // A proxy before a page that asks for tokens may speak TLS; a page without tokens is on this machine and never
    // does.
    let schemes = if is_open {
        &["http"][..]
    } else {
        &["http", "https"]
    };
    match values(headers, "origin")[..] {
        [] => false,
        [origin] => match std::str::from_utf8(origin).map(|it| it.split_once("://")) {
            Ok(Some((scheme, authority))) => {
                !schemes.contains(&scheme) || Some(authority) != host.map(Authority::as_str)
            }
            _ => true,
        },
        _ => true,
    }
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    let values = headers.get_all(name).iter();
    values.map(HeaderValue::as_bytes).collect()
}

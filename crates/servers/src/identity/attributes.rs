//! The action of a request, from its method and path, as the API servers of Kubernetes derive it.
//!
//! ```text
//! GET /apis/external.metrics.k8s.io/v1beta1/namespaces/shop/qps           list qps in shop
//! GET /apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/qps    get pods/qps, name *, in shop
//! GET /apis/custom.metrics.k8s.io/v1beta2/nodes/n1/load                   get nodes/load, name n1
//! GET /apis/external.metrics.k8s.io/v1beta1                               get this path
//! ```

use axum::http::Method;

use foretide_api::ports::{Access, ResourceAccess};

/// Subresources of a namespace itself; another name after a namespace is a resource in it.
const OF_NAMESPACES: [&str; 2] = ["finalize", "status"];

/// Returns the action of a request; none if the path is none of an API.
///
/// A path is divided before it is decoded, as the router does it, so both see the same names.
pub fn attributes(method: &Method, path: &str) -> Option<Access> {
    let names = names(path)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match &names[..] {
        ["apis", group, version, rest @ ..] if !rest.is_empty() => {
            Some(Access::Resource(resource(method, group, version, rest)))
        }
        _ => Some(Access::Path {
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
        }),
    }
}

fn resource(method: &Method, group: &str, version: &str, rest: &[&str]) -> ResourceAccess {
    let (namespace, parts) = match rest {
        ["namespaces", namespace, parts @ ..]
            if !parts.is_empty() && !OF_NAMESPACES.contains(&parts[0]) =>
        {
            (*namespace, parts)
        }
        // The namespace itself.
        ["namespaces", namespace, ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    ResourceAccess {
        verb: verb(method, parts.get(1).is_some()).to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0),
        subresource: part(2),
        name: part(1),
    }
}

fn verb(method: &Method, has_name: bool) -> &'static str {
    match (method.as_str(), has_name) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        // Only a rule for all verbs allows an empty one.
        _ => "",
    }
}

/// The decoded names of a path.
fn names(path: &str) -> Option<Vec<String>> {
    let inner = path.strip_prefix('/')?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split('/').map(decoded).collect()
}

/// One name of a path, decoded; none if the segment is no valid name.
fn decoded(segment: &str) -> Option<String> {
    let name = percent_decoded(segment)?;
    (!matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0'])).then_some(name)
}

/// A percent-encoded text, decoded; none if the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verb, namespace, resource, name and subresource of a request, where `-` is empty.
    fn of(request: &str) -> String {
        let (method, rest) = request.split_once(' ').unwrap();
        let path = format!("/apis/custom.metrics.k8s.io/v1beta2/{rest}");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let Some(Access::Resource(access)) = attributes(&method, &path) else {
            panic!("{request}")
        };
        let of_api = (&*access.group, &*access.version);
        assert_eq!(of_api, ("custom.metrics.k8s.io", "v1beta2"));
        let ResourceAccess {
            verb, namespace, ..
        } = access;
        let parts = [
            verb,
            namespace,
            access.resource,
            access.name,
            access.subresource,
        ];
        let shown = parts.map(|part| {
            if part.is_empty() {
                "-".to_owned()
            } else {
                part
            }
        });
        shown.join(" ")
    }

    #[test]
    fn the_attributes_of_a_path_are_those_of_kubernetes() {
        for (request, expected) in [
            ("GET namespaces/shop/qps", "list shop qps - -"),
            ("GET namespaces/shop/qps/", "list shop qps - -"),
            ("HEAD namespaces/shop/qps", "list shop qps - -"),
            ("GET namespaces/shop/q%70s", "list shop qps - -"),
            (
                "DELETE namespaces/shop/qps",
                "deletecollection shop qps - -",
            ),
            ("POST namespaces/shop/qps", "create shop qps - -"),
            ("TRACE namespaces/shop/qps", "- shop qps - -"),
            ("GET namespaces/shop/pods/%2A/qps", "get shop pods * qps"),
            (
                "GET namespaces/shop/pods/web-1/qps",
                "get shop pods web-1 qps",
            ),
            ("GET namespaces/shop/metrics/qps", "get shop metrics qps -"),
            (
                "GET namespaces/shop/status",
                "get shop namespaces shop status",
            ),
            ("GET namespaces/shop", "get shop namespaces shop -"),
            ("GET namespaces", "list - namespaces - -"),
            ("PUT nodes/n1/load", "update - nodes n1 load"),
            ("PATCH nodes/n1", "patch - nodes n1 -"),
            ("DELETE nodes/n1", "delete - nodes n1 -"),
        ] {
            assert_eq!(of(request), expected, "{request}");
        }
    }

    #[test]
    fn a_path_without_a_resource_is_its_own_attribute() {
        for path in [
            "/",
            "/apis",
            "/apis/g",
            "/apis/g/v1",
            "/apis/g/v1/",
            "/openapi/v2",
            "/metrics/x/y/z/a",
        ] {
            let expected = Access::Path {
                verb: "get".to_owned(),
                path: path.to_owned(),
            };
            assert_eq!(attributes(&Method::GET, path), Some(expected));
        }
    }

    #[test]
    fn a_path_that_could_be_read_in_two_ways_is_refused() {
        for path in [
            "",
            "apis/g/v1/m",
            "//apis/g/v1/m",
            "/apis/g/v1//m",
            "/apis/g/v1/./m",
            "/apis/g/v1/namespaces/a/%2e%2E/m",
            "/apis/g/v1/namespaces/a/pods%2Fb/m",
            "/apis/g/v1/namespaces/a/%00",
            "/apis/g/v1/namespaces/a/%ff",
            "/apis/g/v1/namespaces/a/%2",
            "/apis/g/v1/namespaces/a/%zz",
        ] {
            assert_eq!(attributes(&Method::GET, path), None, "{path}");
        }
    }

    #[test]
    fn request_paths() {
        bolero::check!()
            .with_iterations(4_000)
            .with_type::<Vec<String>>()
            .for_each(|names| {
                let path = format!("/apis/g/v/{}", names.join("/"));
                let Some(access) = attributes(&Method::GET, &path) else {
                    return;
                };
                let Access::Resource(access) = access else {
                    assert!(names.concat().is_empty());
                    return;
                };
                for name in [
                    access.namespace,
                    access.resource,
                    access.subresource,
                    access.name,
                ] {
                    assert!(!name.contains('/') && name != "..", "{name}");
                }
            });
    }
}

//! Who a client is, and what it may do, as an API server decides.

use std::{collections::BTreeMap, future::Future};

use super::ClusterError;

/// The longest token that is reviewed. Those of service accounts have one to two thousand characters.
const TOKEN_MAX: usize = 16 * 1024;

/// The audience of tokens that are good for the page alone: the API server refuses them.
pub const PAGE_AUDIENCE: &str = "foretide-page";

/// A bearer token (RFC 6750). Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("BearerToken([hidden])")]
pub struct BearerToken(String);

/// A user of the Kubernetes API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:serviceaccount:kube-system:horizontal-pod-autoscaler`.
    pub name: String,
    /// The UID, if it has one.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The access that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// A path that is no resource.
    Path {
        /// The method in lower case.
        verb: String,
        /// The path.
        path: String,
    },
    /// A resource.
    Resource(ResourceAccess),
}

/// A request about a resource. What it does not name is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAccess {
    /// `get`, `list`, `create` and so on.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Version of the group.
    pub version: String,
    /// Namespace.
    pub namespace: String,
    /// Resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Name of the object.
    pub name: String,
}

/// The certificate authorities of the clients of an API server, and of those that may speak for them: the `ConfigMap`
/// `kube-system/extension-apiserver-authentication`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAuthorities {
    /// Authorities of the certificates of users, in PEM.
    pub client_ca: Option<String>,
    /// The proxies that may name the user of a request in headers; absent if nobody may.
    pub request_header: Option<RequestHeader>,
}

/// The proxies that may name the user of a request in headers, and those headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Authorities of their certificates, in PEM.
    pub ca: String,
    /// Common names of their certificates; none means any.
    pub allowed_names: Vec<String>,
    /// Headers with the name of the user; the first one that is there counts.
    pub username_headers: Vec<String>,
    /// Headers with its UID; the first one that is there counts.
    pub uid_headers: Vec<String>,
    /// Headers with its groups.
    pub group_headers: Vec<String>,
    /// The prefixes of the names of headers with the other fields of the user.
    pub extra_header_prefixes: Vec<String>,
}

/// Reviews tokens and requests.
pub trait AccessReviewer: Send + Sync + 'static {
    /// The user of a token; none if it is of no user.
    ///
    /// # Errors
    /// When it cannot be known; no message contains the token.
    fn user(
        &self,
        token: &BearerToken,
    ) -> impl Future<Output = Result<Option<User>, ClusterError>> + Send;

    /// True if a user may do this.
    ///
    /// # Errors
    /// When it cannot be known.
    fn is_allowed(
        &self,
        user: &User,
        access: &Access,
    ) -> impl Future<Output = Result<bool, ClusterError>> + Send;
}

// === impl BearerToken ===

impl BearerToken {
    /// The token of an `Authorization` header: `Bearer` in any case, one or more spaces, and a `b64token`.
    ///
    /// ```
    /// use foretide_api::ports::BearerToken;
    ///
    /// let token = BearerToken::of_header("Bearer abc.def==").unwrap();
    /// assert_eq!(token.expose(), "abc.def==");
    /// assert_eq!(BearerToken::of_header("Basic abc"), None);
    /// ```
    pub fn of_header(value: &str) -> Option<Self> {
        let (scheme, token) = value.split_once(' ')?;
        let token = token.trim_matches(' ');
        let unpadded = token.trim_end_matches('=');
        let is_token = !unpadded.is_empty()
            && unpadded
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._~+/".contains(c));
        (scheme.eq_ignore_ascii_case("bearer") && is_token && token.len() <= TOKEN_MAX)
            .then(|| Self(token.to_owned()))
    }

    /// The token itself, to send it to the reviewer.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: &str) -> Option<String> {
        BearerToken::of_header(value).map(|token| token.expose().to_owned())
    }

    #[test]
    fn a_header_has_one_token_after_its_scheme() {
        for (value, found) in [
            ("Bearer a-._~+/9==", Some("a-._~+/9==")),
            ("bearer abc", Some("abc")),
            ("BEARER   abc ", Some("abc")),
            ("", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer =", None),
            ("Bearer a b", None),
            ("Bearer a,b", None),
            ("Bearer a=b", None),
            ("Bearer \u{e4}", None),
            ("Basic abc", None),
            ("abc", None),
            (" Bearer abc", None),
        ] {
            assert_eq!(token(value).as_deref(), found, "{value:?}");
        }
        let longest = "a".repeat(TOKEN_MAX);
        assert_eq!(token(&format!("Bearer {longest}")), Some(longest.clone()));
        assert_eq!(token(&format!("Bearer {longest}a")), None);
    }

    #[test]
    fn debug_output_has_no_token() {
        let token = BearerToken::of_header("Bearer s3cret");
        assert_eq!(format!("{token:?}"), "Some(BearerToken([hidden]))");
    }

    #[test]
    fn bearer_header() {
        bolero::check!()
            .with_iterations(4_000)
            .with_type::<(bool, String)>()
            .for_each(|(with_scheme, text)| {
                let value = if *with_scheme {
                    format!("Bearer {text}")
                } else {
                    text.clone()
                };
                let Some(found) = token(&value) else { return };
                let mut bytes = found.bytes();
                assert!(!found.is_empty() && found.len() <= TOKEN_MAX);
                assert!(bytes.all(|b| b.is_ascii_graphic() && !b"\",;\\".contains(&b)));
                assert_eq!(token(&format!("Bearer {found}")), Some(found));
            });
    }
}

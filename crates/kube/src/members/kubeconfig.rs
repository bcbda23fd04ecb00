//! The kubeconfig of a member cluster, read by a schema of its own.
//!
//! An ordinary kubeconfig can make a client run commands, read files, use proxies and impersonate users. This one is
//! data only: a server, its certificate authority, and a token or a client certificate, all inline. Any other field is
//! an error that names the field and what to do. Parsing reads no file, starts no process and uses no network, and no
//! message repeats a value.
//!
//! ```yaml
//! current-context: east
//! contexts: [{name: east, context: {cluster: east, user: foretide-hub}}]
//! clusters: [{name: east, cluster: {server: "https://east.example:6443", certificate-authority-data: LS0t...}}]
//! users: [{name: foretide-hub, user: {token: eyJh...}}]
//! ```

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Map, Value};
use url::Url;

use super::address;
use foretide_base::pem::certificates;

/// The largest kubeconfig that is read, in bytes.
const SIZE_MAX: usize = 64 * 1024;
/// The longest token that is accepted, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// Address and credentials of a member: all that is taken from its kubeconfig. Equal values need no new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Base URL of the API server; https.
    pub server: Url,
    /// The name that its certificate must have, if not that of the URL.
    pub tls_server_name: Option<String>,
    /// The certificate authority: DER certificates, at least one.
    pub certificate_authority: Vec<Vec<u8>>,
    pub(crate) credentials: Credentials,
}

/// The credentials of the hub in a member.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub enum Credentials {
    /// A bearer token.
    #[debug("Token(...)")]
    Token(String),
    /// A client certificate and its key, PEM.
    #[debug("Certificate(...)")]
    Certificate {
        /// The chain.
        certificate: Vec<u8>,
        /// The private key.
        key: Vec<u8>,
    },
}

/// Reason why a kubeconfig is not used: the field, the problem with it, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct KubeconfigError {
    /// Path of the field in the kubeconfig.
    pub field: String,
    /// The problem, and the remedy.
    pub problem: String,
}

impl KubeconfigError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// The fields of a mapping of the kubeconfig; any other is an error.
struct Schema {
    /// Fields that are read, and others that change nothing for the hub, such as `extensions`.
    allowed: &'static [&'static str],
    /// Fields that kubectl knows and that are rejected if their value has an effect, each with the reason.
    refused: &'static [(&'static str, &'static str)],
}

const FILE: &str = "names a file, and a member's kubeconfig must not make the hub read files; \
                    put its content inline (kubectl config view --minify --flatten --raw does)";
const COMMAND: &str = "makes clients run a command, which the hub does not do for a member; \
                       use the token of a service account (foretide members add makes one)";
const IMPERSONATION: &str = "impersonates another user; give the credentials of that user instead";
const PASSWORD: &str = "is no longer accepted by API servers; use a token or a client certificate";

const ROOT: Schema = Schema {
    allowed: &[
        "apiVersion",
        "kind",
        "preferences",
        "clusters",
        "contexts",
        "users",
        "current-context",
        "extensions",
    ],
    refused: &[],
};
const CONTEXT: Schema = Schema {
    allowed: &["cluster", "user", "namespace", "extensions"],
    refused: &[],
};
const CLUSTER: Schema = Schema {
    allowed: &[
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "disable-compression",
        "extensions",
    ],
    refused: &[
        ("certificate-authority", FILE),
        (
            "insecure-skip-tls-verify",
            "lets any server pose as the member; give certificate-authority-data",
        ),
        (
            "proxy-url",
            "sends the credentials through a proxy; remove it and give a reachable server",
        ),
    ],
};
const USER: Schema = Schema {
    allowed: &[
        "token",
        "client-certificate-data",
        "client-key-data",
        "extensions",
    ],
    refused: &[
        ("tokenFile", FILE),
        ("client-certificate", FILE),
        ("client-key", FILE),
        ("exec", COMMAND),
        ("auth-provider", COMMAND),
        ("username", PASSWORD),
        ("password", PASSWORD),
        ("as", IMPERSONATION),
        ("as-uid", IMPERSONATION),
        ("as-groups", IMPERSONATION),
        ("as-user-extra", IMPERSONATION),
    ],
};

/// A mapping of the kubeconfig, and its path. Derived types would not do: their errors quote values, and do not say
/// where.
struct Section<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

// === impl Access ===

impl Access {
    /// Parses a kubeconfig; `allow_loopback` accepts a server on this machine.
    ///
    /// # Errors
    /// [`KubeconfigError`], for any field that is not known to be safe.
    pub fn parse(text: &[u8], allow_loopback: bool) -> Result<Self, KubeconfigError> {
        let document = parse_yaml(text)?;
        let root = Section::root(&document)?;
        let (context_name, context) = root.only_entry("contexts", "context", &CONTEXT)?;
        if context_name != root.required("current-context")? {
            return Err(root.error("current-context", "does not name the context; correct it"));
        }
        let (cluster_name, cluster) = root.only_entry("clusters", "cluster", &CLUSTER)?;
        let (user_name, user) = root.only_entry("users", "user", &USER)?;
        for (key, name) in [("cluster", cluster_name), ("user", user_name)] {
            if context.required(key)? != name {
                let problem = format!("does not name the {key} of this kubeconfig; correct it");
                return Err(context.error(key, problem));
            }
        }
        let parsed = address::parse_server(cluster.required("server")?, allow_loopback);
        Ok(Self {
            server: parsed.map_err(|problem| cluster.error("server", problem))?,
            tls_server_name: cluster.tls_server_name()?,
            certificate_authority: cluster.certificate_authority()?,
            credentials: user.credentials()?,
        })
    }

    /// Host and port of the server, for messages.
    pub fn host(&self) -> String {
        let host = self.server.host_str().unwrap_or_default();
        match self.server.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

fn parse_yaml(text: &[u8]) -> Result<Value, KubeconfigError> {
    let field = "the kubeconfig";
    if text.len() > SIZE_MAX {
        let problem = format!(
            "has {} bytes, at most {SIZE_MAX} are read; keep one context only",
            text.len()
        );
        return Err(KubeconfigError::new(field, problem));
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| KubeconfigError::new(field, "is not UTF-8 text; store it unchanged"))?;
    serde_saphyr::from_str(text).map_err(|yaml| {
        // The parser's own message may quote the text, which is secret.
        let place = yaml.location().map_or_else(String::new, |at| {
            format!(" (line {}, column {})", at.line(), at.column())
        });
        let problem = format!("is not valid YAML{place}; expected a kubeconfig");
        KubeconfigError::new(field, problem)
    })
}

// === impl Section ===

impl<'a> Section<'a> {
    fn root(document: &'a Value) -> Result<Self, KubeconfigError> {
        let Value::Object(fields) = document else {
            let problem = "is not a mapping; expected a kubeconfig";
            return Err(KubeconfigError::new("the kubeconfig", problem));
        };
        let path = String::new();
        Self { path, fields }.checked(&ROOT)
    }

    /// The same section, if the schema accepts all of its fields.
    fn checked(self, schema: &Schema) -> Result<Self, KubeconfigError> {
        for (key, value) in self.fields {
            if schema.allowed.contains(&key.as_str()) {
                continue;
            }
            match schema.refused.iter().find(|(refused, _)| refused == key) {
                Some((_, problem)) if has_effect(value) => return Err(self.error(key, *problem)),
                // A field without effect, such as `insecure-skip-tls-verify: false`, does no harm.
                Some(_) => {}
                None => {
                    return Err(self.error(shown(key), "is not known to be safe; remove it"));
                }
            }
        }
        Ok(self)
    }

    /// The only entry of a list of named sections: its name and its section.
    fn only_entry(
        &self,
        list: &str,
        section: &'static str,
        schema: &Schema,
    ) -> Result<(&'a str, Self), KubeconfigError> {
        let entries = self.fields.get(list).and_then(Value::as_array);
        let Some([entry]) = entries.map(Vec::as_slice) else {
            let count = entries.map_or(0, Vec::len);
            return Err(self.error(
                list,
                format!("has {count} entries, expected one; kubectl config view --minify --flatten --raw writes such a kubeconfig"),
            ));
        };
        let entry = self.mapping(&format!("{list}[0]"), entry)?;
        if let Some(key) = entry
            .fields
            .keys()
            .find(|key| *key != "name" && *key != section)
        {
            return Err(entry.error(shown(key), "is not known to be safe; remove it"));
        }
        let name = entry.required("name")?;
        let Some(value) = entry.fields.get(section) else {
            return Err(entry.error(section, "is missing; add it"));
        };
        Ok((name, entry.mapping(section, value)?.checked(schema)?))
    }

    fn mapping(&self, key: &str, value: &'a Value) -> Result<Self, KubeconfigError> {
        match value {
            Value::Object(fields) => Ok(Self {
                path: self.path_of(key),
                fields,
            }),
            _ => Err(self.error(key, "is not a mapping; expected one")),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn error(&self, key: &str, problem: impl Into<String>) -> KubeconfigError {
        KubeconfigError::new(self.path_of(key), problem)
    }

    /// A string that must be present and not empty.
    fn required(&self, key: &str) -> Result<&'a str, KubeconfigError> {
        self.optional(key)?
            .ok_or_else(|| self.error(key, "is missing; add it"))
    }

    /// A string, if it is present and not empty.
    fn optional(&self, key: &str) -> Result<Option<&'a str>, KubeconfigError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.error(key, "is not a string; write it in quotes")),
        }
    }

    /// Base64 data, if it is present.
    fn data(&self, key: &str) -> Result<Option<Vec<u8>>, KubeconfigError> {
        let Some(text) = self.optional(key)? else {
            return Ok(None);
        };
        let decoded = STANDARD.decode(text).map(Some);
        decoded.map_err(|_| self.error(key, "is not base64; encode the PEM text as base64"))
    }

    fn tls_server_name(&self) -> Result<Option<String>, KubeconfigError> {
        let key = "tls-server-name";
        let name = self.optional(key)?;
        if name.is_some_and(|name| ServerName::try_from(name).is_err()) {
            return Err(self.error(key, "is neither a DNS name nor an address; correct it"));
        }
        Ok(name.map(str::to_owned))
    }

    fn certificate_authority(&self) -> Result<Vec<Vec<u8>>, KubeconfigError> {
        let key = "certificate-authority-data";
        let Some(pem) = self.data(key)? else {
            return Err(self.error(
                key,
                "is missing; the hub trusts a member by its own authority only, so add it",
            ));
        };
        self.certificates(key, &pem)
    }

    fn certificates(&self, key: &str, pem: &[u8]) -> Result<Vec<Vec<u8>>, KubeconfigError> {
        let found = certificates(pem)
            .ok_or_else(|| self.error(key, "holds no certificate; expected PEM text as base64"))?;
        Ok(found.iter().map(|der| der.to_vec()).collect())
    }

    fn credentials(&self) -> Result<Credentials, KubeconfigError> {
        let token = self.optional("token")?;
        let certificate = self.data("client-certificate-data")?;
        let key = self.data("client-key-data")?;
        let (field, problem) = match (token, certificate, key) {
            (Some(token), None, None) => return self.token(token),
            (None, Some(certificate), Some(key)) => {
                return self.client_certificate(certificate, key);
            }
            (None, None, None) => (
                "token",
                "is missing, and so is client-certificate-data; add one of them",
            ),
            (None, None, Some(_)) => (
                "client-certificate-data",
                "is missing beside its key; add it",
            ),
            (None, Some(_), None) => (
                "client-key-data",
                "is missing beside its certificate; add it",
            ),
            (Some(_), _, _) => (
                "token",
                "is given beside a client certificate; keep one of the two",
            ),
        };
        Err(self.error(field, problem))
    }

    fn token(&self, token: &str) -> Result<Credentials, KubeconfigError> {
        // The token becomes a part of a header.
        if token.len() > TOKEN_MAX || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(self.error(
                "token",
                "is not a bearer token; expected one line of visible ASCII characters without spaces",
            ));
        }
        Ok(Credentials::Token(token.to_owned()))
    }

    fn client_certificate(
        &self,
        certificate: Vec<u8>,
        key: Vec<u8>,
    ) -> Result<Credentials, KubeconfigError> {
        self.certificates("client-certificate-data", &certificate)?;
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(self.error(
                "client-key-data",
                "holds no private key; expected PEM text as base64",
            ));
        }
        Ok(Credentials::Certificate { certificate, key })
    }
}

/// True if a refused field would change anything; `insecure-skip-tls-verify: false` and `exec: null` do not.
fn has_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// A key for a message. A user may have put a secret where a key should be, so an unusual one is not repeated.
fn shown(key: &str) -> &str {
    let plain = key.len() <= 40 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain {
        key
    } else {
        "(a field with a long or odd name)"
    }
}

#[cfg(test)]
mod tests;

//! The kubeconfig of a member, read by a schema of our own.
//!
//! A kubeconfig as such is a program: it names commands to run, files to read, proxies and other people to speak as.
//! This one is data: a server, its certificate authority, and a token or a client certificate, all inline. Whatever
//! else is written makes it refused, with the field and what to do. Reading touches no file, no process, no network,
//! and no message repeats a value.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Url;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Map, Value};

use super::address;

/// Largest kubeconfig that is read, in bytes.
pub const SIZE_MAX: usize = 64 * 1024;
/// Longest token that is taken, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// How to reach a member: all that is taken from its kubeconfig. Equal values need no new connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// Base URL of the API server; https.
    pub server: Url,
    /// Name that its certificate is checked for, if not that of the URL.
    pub tls_server_name: Option<String>,
    /// Its certificate authority: DER certificates, at least one.
    pub(super) authority: Vec<Vec<u8>>,
    pub(super) credentials: Credentials,
}

/// Who we are to a member.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, PEM.
    Certificate {
        /// The chain.
        certificate: Vec<u8>,
        /// The private key.
        key: Vec<u8>,
    },
}

/// Why a kubeconfig is not used: the field, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct Refusal {
    /// Where: a path in the kubeconfig.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}

/// What we think of a field that may be in a section of a kubeconfig.
#[derive(Clone, Copy)]
enum Rule {
    /// It is read.
    Read,
    /// It has no effect on us.
    Ignored,
    /// It is refused wherever it says something.
    Refused(&'static str),
}

/// The fields that a section may have; all others are refused.
type Rules<'a> = &'a [(&'a str, Rule)];

use Rule::{Ignored, Read, Refused};

const FILE: &str = "names a file, and a member's kubeconfig may not make the hub read files; \
                    put its content inline (kubectl config view --minify --flatten --raw does)";
const COMMAND: &str = "makes clients run a command, which the hub does not do for a member; \
                       use the token of a service account (foretide members add makes one)";
const SPEAKS_AS: &str = "makes requests in somebody else's name; \
                         give the credentials of who the hub is to be";
const PASSWORD: &str =
    "is not accepted by API servers any more; use a token or a client certificate";

const ROOT: &[(&str, Rule)] = &[
    ("apiVersion", Ignored),
    ("kind", Ignored),
    ("preferences", Ignored),
    ("clusters", Read),
    ("contexts", Read),
    ("users", Read),
    ("current-context", Read),
    ("extensions", Ignored),
];
const NAMED_CLUSTER: &[(&str, Rule)] = &[("name", Read), ("cluster", Read)];
const NAMED_CONTEXT: &[(&str, Rule)] = &[("name", Read), ("context", Read)];
const NAMED_USER: &[(&str, Rule)] = &[("name", Read), ("user", Read)];
const CONTEXT: &[(&str, Rule)] = &[
    ("cluster", Read),
    ("user", Read),
    ("namespace", Ignored),
    ("extensions", Ignored),
];
const CLUSTER: &[(&str, Rule)] = &[
    ("server", Read),
    ("certificate-authority-data", Read),
    ("tls-server-name", Read),
    ("disable-compression", Ignored),
    ("extensions", Ignored),
    ("certificate-authority", Refused(FILE)),
    (
        "insecure-skip-tls-verify",
        Refused("lets anybody answer in the member's place; give certificate-authority-data"),
    ),
    (
        "proxy-url",
        Refused(
            "sends the credentials by way of somebody else; remove it and give a reachable server",
        ),
    ),
];
const USER: &[(&str, Rule)] = &[
    ("token", Read),
    ("client-certificate-data", Read),
    ("client-key-data", Read),
    ("extensions", Ignored),
    ("tokenFile", Refused(FILE)),
    ("client-certificate", Refused(FILE)),
    ("client-key", Refused(FILE)),
    ("exec", Refused(COMMAND)),
    ("auth-provider", Refused(COMMAND)),
    ("username", Refused(PASSWORD)),
    ("password", Refused(PASSWORD)),
    ("as", Refused(SPEAKS_AS)),
    ("as-uid", Refused(SPEAKS_AS)),
    ("as-groups", Refused(SPEAKS_AS)),
    ("as-user-extra", Refused(SPEAKS_AS)),
];

/// A mapping of the kubeconfig and where it is.
#[derive(Clone)]
struct Section<'a> {
    at: String,
    fields: &'a Map<String, Value>,
}

// === impl Access ===

impl Access {
    /// Reads a kubeconfig; `allow_loopback` lets its server be on this machine.
    ///
    /// # Errors
    /// [`Refusal`], for anything that is not known to be safe.
    pub fn parse(text: &[u8], allow_loopback: bool) -> Result<Self, Refusal> {
        let document = document(text)?;
        let root = Section::whole(&document)?;
        let context = root.named("contexts", "context", (NAMED_CONTEXT, CONTEXT))?;
        let current = root.text("current-context")?;
        if context.0 != current {
            return Err(root.refuse("current-context", "does not name the context; correct it"));
        }
        let cluster = root.named("clusters", "cluster", (NAMED_CLUSTER, CLUSTER))?;
        let user = root.named("users", "user", (NAMED_USER, USER))?;
        for (key, name) in [("cluster", cluster.0), ("user", user.0)] {
            if context.1.text(key)? != name {
                let problem = format!("does not name the {key} of this kubeconfig; correct it");
                return Err(context.1.refuse(key, problem));
            }
        }
        let cluster = cluster.1;
        let server = address::server(cluster.text("server")?, allow_loopback);
        Ok(Self {
            server: server.map_err(|problem| cluster.refuse("server", problem))?,
            tls_server_name: cluster.server_name()?,
            authority: cluster.authority()?,
            credentials: user.1.credentials()?,
        })
    }

    /// Host and port of the server, for people.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.server.host_str().unwrap_or_default();
        match self.server.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("server", &self.server.as_str())
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token(...)",
            Self::Certificate { .. } => "Certificate(...)",
        })
    }
}

fn document(text: &[u8]) -> Result<Value, Refusal> {
    let refuse = |problem: String| Refusal {
        field: "the kubeconfig".to_owned(),
        problem,
    };
    if text.len() > SIZE_MAX {
        return Err(refuse(format!(
            "has {} bytes, at most {SIZE_MAX} are read; keep one context only",
            text.len()
        )));
    }
    let text = std::str::from_utf8(text)
        .map_err(|_| refuse("is not UTF-8 text; store it as it was written".to_owned()))?;
    serde_saphyr::from_str(text).map_err(|error| {
        // The parser's own words may quote the text, which is secret.
        let place = error.location().map_or_else(String::new, |at| {
            format!(" (line {}, column {})", at.line(), at.column())
        });
        refuse(format!("is not valid YAML{place}; expected a kubeconfig"))
    })
}

// === impl Section ===

impl<'a> Section<'a> {
    fn whole(document: &'a Value) -> Result<Self, Refusal> {
        let Value::Object(fields) = document else {
            return Err(Refusal {
                field: "the kubeconfig".to_owned(),
                problem: "is not a mapping; expected a kubeconfig".to_owned(),
            });
        };
        let section = Self {
            at: String::new(),
            fields,
        };
        section.judged(ROOT)
    }

    /// The same section, if the rules let all of its fields pass.
    fn judged(self, rules: Rules<'_>) -> Result<Self, Refusal> {
        for (key, value) in self.fields {
            match rules.iter().find(|(known, _)| known == key) {
                Some((_, Refused(problem))) if says_something(value) => {
                    return Err(self.refuse(key, *problem));
                }
                Some(_) => {}
                None => {
                    let key = shown(key);
                    return Err(self.refuse(&key, "is not known to be safe; remove it"));
                }
            }
        }
        Ok(self)
    }

    /// The one entry of a list of named sections: its name and the section.
    fn named(
        &self,
        list: &str,
        inner: &str,
        (outer_rules, inner_rules): (Rules<'_>, Rules<'_>),
    ) -> Result<(&'a str, Self), Refusal> {
        let entries = self.fields.get(list).and_then(Value::as_array);
        let Some([entry]) = entries.map(Vec::as_slice) else {
            let count = entries.map_or(0, Vec::len);
            return Err(self.refuse(
                list,
                format!("has {count} entries, expected one; kubectl config view --minify --flatten --raw writes such a kubeconfig"),
            ));
        };
        let entry = self
            .inside(&format!("{list}[0]"), entry)?
            .judged(outer_rules)?;
        let name = entry.text("name")?;
        let Some(value) = entry.fields.get(inner) else {
            return Err(entry.refuse(inner, "is missing; add it"));
        };
        let section = entry.inside(inner, value)?;
        Ok((name, section.judged(inner_rules)?))
    }

    fn inside(&self, key: &str, value: &'a Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(fields) => Ok(Self {
                at: self.path(key),
                fields,
            }),
            _ => Err(self.refuse(key, "is not a mapping; expected one")),
        }
    }

    fn path(&self, key: &str) -> String {
        if self.at.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.at)
        }
    }

    fn refuse(&self, key: &str, problem: impl Into<String>) -> Refusal {
        Refusal {
            field: self.path(key),
            problem: problem.into(),
        }
    }

    /// A text that must be there and not be empty.
    fn text(&self, key: &str) -> Result<&'a str, Refusal> {
        self.optional(key)?
            .ok_or_else(|| self.refuse(key, "is missing; add it"))
    }

    /// A text, if it is there and not empty.
    fn optional(&self, key: &str) -> Result<Option<&'a str>, Refusal> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.refuse(key, "is not a text; write it in quotes")),
        }
    }

    /// Base64 data, if it is there.
    fn data(&self, key: &str) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(text) = self.optional(key)? else {
            return Ok(None);
        };
        let decoded = STANDARD.decode(text).map(Some);
        decoded.map_err(|_| self.refuse(key, "is not base64; encode the PEM text as base64"))
    }

    fn server_name(&self) -> Result<Option<String>, Refusal> {
        let key = "tls-server-name";
        let Some(name) = self.optional(key)? else {
            return Ok(None);
        };
        match ServerName::try_from(name) {
            Ok(_) => Ok(Some(name.to_owned())),
            Err(_) => Err(self.refuse(key, "is neither a DNS name nor an address; correct it")),
        }
    }

    fn authority(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        let key = "certificate-authority-data";
        let Some(pem) = self.data(key)? else {
            return Err(self.refuse(
                key,
                "is missing; the hub trusts a member by its own authority only, so add it",
            ));
        };
        self.certificates(key, &pem)
    }

    fn certificates(&self, key: &str, pem: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => {
                Ok(certificates.iter().map(|der| der.to_vec()).collect())
            }
            _ => Err(self.refuse(key, "holds no certificate; expected PEM text as base64")),
        }
    }

    fn credentials(&self) -> Result<Credentials, Refusal> {
        let token = self.optional("token")?;
        let certificate = self.data("client-certificate-data")?;
        let key = self.data("client-key-data")?;
        match (token, certificate, key) {
            (Some(token), None, None) => self.token(token),
            (None, Some(certificate), Some(key)) => self.client_certificate(certificate, key),
            (None, None, None) => Err(self.refuse(
                "token",
                "is missing, and so is client-certificate-data; add one of them",
            )),
            (None, None, Some(_)) => Err(self.refuse(
                "client-certificate-data",
                "is missing beside its key; add it",
            )),
            (None, Some(_), None) => Err(self.refuse(
                "client-key-data",
                "is missing beside its certificate; add it",
            )),
            (Some(_), _, _) => Err(self.refuse(
                "token",
                "stands beside a client certificate; keep one of the two",
            )),
        }
    }

    fn token(&self, token: &str) -> Result<Credentials, Refusal> {
        if token.len() > TOKEN_MAX || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(self.refuse(
                "token",
                "is no bearer token; expected one line of visible ASCII characters without blanks",
            ));
        }
        Ok(Credentials::Token(token.to_owned()))
    }

    fn client_certificate(
        &self,
        certificate: Vec<u8>,
        key: Vec<u8>,
    ) -> Result<Credentials, Refusal> {
        self.certificates("client-certificate-data", &certificate)?;
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(self.refuse(
                "client-key-data",
                "holds no private key; expected PEM text as base64",
            ));
        }
        Ok(Credentials::Certificate { certificate, key })
    }
}

/// Whether a refused field would have an effect; `insecure-skip-tls-verify: false` and `exec: null` have none.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// A key as it is shown: somebody may have put a secret where a key should be.
fn shown(key: &str) -> String {
    let plain = key.len() <= 40 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain {
        key.to_owned()
    } else {
        "(a field with a long or odd name)".to_owned()
    }
}

#[cfg(test)]
mod tests;

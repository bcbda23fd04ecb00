//! The Secret of a member cluster.
//!
//! Its labels describe the cluster, its annotations hold taints and the name of a Prometheus endpoint, and its data
//! holds the kubeconfig. A field that cannot be read is reported as a problem and never removes the member. Connecting
//! is left to `registry.rs`.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use foretide_federate::{Profile, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::kubeconfig::{Access, KubeconfigError};
use crate::cluster::{Stored, read, size};

const PROVIDER: &str = "foretide.io/provider";
const REGION: [&str; 2] = ["foretide.io/region", "topology.kubernetes.io/region"];
const ZONE: [&str; 2] = ["foretide.io/zone", "topology.kubernetes.io/zone"];
/// Separates the zones of a member in a label, whose value cannot hold a comma.
pub const ZONE_SEPARATOR: char = '_';
const TAINTS: &str = "foretide.io/taints";
const PROMETHEUS: &str = "foretide.io/prometheus";
/// Annotation that announces that a member leaves.
pub const LEAVING: &str = "foretide.io/leaving";

/// The fields of a Secret that describe a member. No message shows its data.
#[derive(Clone, Default, PartialEq, derive_more::Debug)]
pub struct MemberSecret {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    // One of another tool may repeat the data.
    #[debug(skip)]
    annotations: BTreeMap<String, String>,
    #[debug("{:?}", data.keys())]
    data: BTreeMap<String, String>,
}

/// Description of a member by its Secret, without the kubeconfig.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberInfo {
    pub profile: Profile,
    pub taints: Vec<Taint>,
    pub prometheus: Option<String>,
    /// True if the member leaves on purpose.
    pub leaving: bool,
    pub problem: Option<String>,
}

#[derive(Deserialize)]
struct SecretObject {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, String>>,
}

/// An annotation of `kubectl apply`, which holds a copy of the whole Secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

// === impl MemberSecret ===

impl Stored for MemberSecret {
    fn decode(object: Value) -> Result<Self, String> {
        // The parser's own message may quote a value.
        let SecretObject { metadata, data } =
            read(object).map_err(|_| "expected a Secret whose data are strings".to_owned())?;
        let mut annotations = metadata.annotations.unwrap_or_default();
        annotations.remove(LAST_APPLIED);
        Ok(Self {
            name: metadata.name.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations,
            data: data.unwrap_or_default(),
        })
    }

    fn size(&self) -> usize {
        let texts = [&self.labels, &self.annotations, &self.data];
        size_of::<Self>() + texts.map(size::of_texts).iter().sum::<usize>()
    }

    fn spec_eq(&self, before: &Self) -> bool {
        self == before
    }
}

impl MemberSecret {
    /// Address and credentials of the member, from the kubeconfig under `key`.
    ///
    /// # Errors
    /// The kubeconfig is missing, or cannot be used.
    pub fn access(&self, key: &str, allow_loopback: bool) -> Result<Access, KubeconfigError> {
        let problem = match self.data.get(key).map(|encoded| STANDARD.decode(encoded)) {
            Some(Ok(text)) => return Access::parse(&text, allow_loopback),
            Some(Err(_)) => "is not base64; encode the kubeconfig as base64",
            None => {
                "is missing; put the kubeconfig there, or name its key with --member-secret-key"
            }
        };
        Err(KubeconfigError::new(format!("data.{key}"), problem))
    }

    /// The description of member `name` by the annotations of the Secret and by `labels`.
    pub fn info(&self, name: &str, labels: &BTreeMap<String, String>) -> MemberInfo {
        let annotation = self.annotations.get(TAINTS).map_or("", String::as_str);
        let (taints, invalid) = parse_taints(annotation);
        let problem = (!invalid.is_empty()).then(|| {
            format!(
                "annotation {TAINTS}: expected KEY=VALUE:EFFECT with the effect NoSchedule, PreferNoSchedule or \
                 NoExecute, got {}; the other taints apply",
                invalid.join(" and ")
            )
        });
        MemberInfo {
            profile: Profile {
                name: name.to_owned(),
                labels: labels.clone(),
                provider: label(labels, [PROVIDER; 2]).to_owned(),
                region: label(labels, REGION).to_owned(),
                zones: list(label(labels, ZONE), &[ZONE_SEPARATOR])
                    .map(str::to_owned)
                    .collect(),
            },
            taints,
            prometheus: self
                .annotations
                .get(PROMETHEUS)
                .filter(|name| !name.is_empty())
                .cloned(),
            leaving: self
                .annotations
                .get(LEAVING)
                .is_some_and(|value| value == "true"),
            problem,
        }
    }
}

/// The first of two labels that is present; empty for none.
fn label<'a>(labels: &'a BTreeMap<String, String>, keys: [&str; 2]) -> &'a str {
    let found = keys.iter().find_map(|key| labels.get(*key));
    found.map_or("", String::as_str)
}

/// The trimmed elements of a list that is separated by commas or by `separators`.
fn list<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = &'a str> {
    let parts = text.split(move |c| c == ',' || separators.contains(&c));
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// Parses taints in the form of `kubectl taint`, `key=value:Effect` or `key:Effect`, separated by commas. Returns the
/// taints, and the elements that are not valid.
fn parse_taints(text: &str) -> (Vec<Taint>, Vec<String>) {
    let (mut taints, mut invalid) = (Vec::new(), Vec::new());
    for part in list(text, &[]) {
        match parse_taint(part) {
            Some(taint) => taints.push(taint),
            None => invalid.push(format!("{:?}", part.chars().take(80).collect::<String>())),
        }
    }
    (taints, invalid)
}

fn parse_taint(text: &str) -> Option<Taint> {
    let (named, effect) = text.rsplit_once(':')?;
    let (key, value) = named.split_once('=').unwrap_or((named, ""));
    let effect = effect.parse().ok()?;
    let valid = !key.is_empty() && is_plain(key, b"-_./") && is_plain(value, b"-_.");
    valid.then(|| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect,
        since: None,
    })
}

/// True for letters, digits and these marks, at most as many as the longest key has: a prefix of 253 characters, a slash
/// and a name of 63.
fn is_plain(text: &str, marks: &[u8]) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 317 && bytes.all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
}

/// A taint in the form of `kubectl taint`.
pub fn taint_text(taint: &Taint) -> String {
    let effect = taint.effect.as_str();
    let value = match taint.value.as_str() {
        "" => String::new(),
        value => format!("={value}"),
    };
    format!("{}{value}:{effect}", taint.key)
}

/// The elements of a list of taints that are not valid, in quotes.
pub fn invalid_taints(text: &str) -> Vec<String> {
    parse_taints(text).1
}

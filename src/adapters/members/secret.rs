//! A member's Secret: what it says about the member, field by field.
//!
//! Labels tell what the cluster is, annotations its taints and its Prometheus, the data how to reach it. What cannot be
//! read is a problem to be shown, never a reason to drop a member that was there. It refuses to connect.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use super::kubeconfig::{Access, Refusal};
use crate::{
    adapters::kube::{Stored, read},
    domain::federate::{Profile, Taint},
};

const PROVIDER: &str = "foretide.io/provider";
const REGION: [&str; 2] = ["foretide.io/region", "topology.kubernetes.io/region"];
const ZONE: [&str; 2] = ["foretide.io/zone", "topology.kubernetes.io/zone"];
/// What stands between the zones of a member in a label, whose value cannot hold a comma.
pub const ZONES_JOINED_BY: char = '_';
const TAINTS: &str = "foretide.io/taints";
const PROMETHEUS: &str = "foretide.io/prometheus";

/// A Secret, as far as it tells about a member. Its data does not show in any message.
#[derive(Clone, Default, PartialEq)]
pub(super) struct MemberSecret {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    data: BTreeMap<String, String>,
}

/// What a Secret says about its member, but for how to reach it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tags {
    pub(super) profile: Profile,
    pub(super) taints: Vec<Taint>,
    pub(super) prometheus: Option<String>,
    pub(super) problem: Option<String>,
}

#[derive(Deserialize)]
struct SecretObject {
    metadata: Meta,
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// Annotations that change with every `kubectl apply` and mean nothing here; one holds a copy of the data.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

// === impl MemberSecret ===

impl Stored for MemberSecret {
    fn decode(object: Value) -> Result<Self, String> {
        // The words of the parser may repeat a value.
        let SecretObject { metadata, data } =
            read(object).map_err(|_| "expected a Secret with texts as data".to_owned())?;
        let mut annotations = metadata.annotations.unwrap_or_default();
        annotations.remove(APPLIED);
        Ok(Self {
            name: metadata.name,
            labels: metadata.labels.unwrap_or_default(),
            annotations,
            data: data.unwrap_or_default(),
        })
    }

    fn spec_eq(&self, before: &Self) -> bool {
        self == before
    }
}

impl std::fmt::Debug for MemberSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberSecret")
            .field("name", &self.name)
            .field("labels", &self.labels)
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

impl MemberSecret {
    /// How to reach the member, by the kubeconfig under `key`.
    ///
    /// # Errors
    /// Why it is not used, and what to do.
    pub(super) fn access(&self, key: &str, allow_loopback: bool) -> Result<Access, Refusal> {
        let refuse = |problem: &str| Refusal {
            field: format!("data.{key}"),
            problem: problem.to_owned(),
        };
        let Some(encoded) = self.data.get(key) else {
            return Err(refuse(
                "is missing; put the kubeconfig there, or name its key with --member-secret-key",
            ));
        };
        let decoded = STANDARD.decode(encoded);
        let text = decoded.map_err(|_| refuse("is not base64; store it anew"))?;
        Access::parse(&text, allow_loopback)
    }

    /// What its annotations and these labels say, the member being called `name`.
    pub(super) fn tags(&self, name: &str, labels: &BTreeMap<String, String>) -> Tags {
        let label = |keys: [&str; 2]| {
            let found = keys.iter().find_map(|key| labels.get(*key));
            found.cloned().unwrap_or_default()
        };
        let written = self.annotations.get(TAINTS).map_or("", String::as_str);
        let (taints, bad) = taints(written);
        let problem = (!bad.is_empty()).then(|| {
            format!(
                "annotation {TAINTS}: expected KEY=VALUE:EFFECT with the effect NoSchedule, PreferNoSchedule or \
                 NoExecute, got {}; the others are in force",
                bad.join(" and ")
            )
        });
        Tags {
            profile: Profile {
                name: name.to_owned(),
                labels: labels.clone(),
                provider: label([PROVIDER; 2]),
                region: label(REGION),
                zones: list(&label(ZONE), &[ZONES_JOINED_BY])
                    .map(str::to_owned)
                    .collect(),
            },
            taints,
            prometheus: self
                .annotations
                .get(PROMETHEUS)
                .filter(|name| !name.is_empty())
                .cloned(),
            problem,
        }
    }
}

/// The parts of a list, without blanks around them. A label value cannot hold a comma, so `separators` may do as well.
fn list<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = &'a str> {
    let parts = text.split(move |c| c == ',' || separators.contains(&c));
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// Taints in the form of `kubectl taint` - `key=value:Effect` or `key:Effect`, parted by commas - and what is none.
pub(super) fn taints(text: &str) -> (Vec<Taint>, Vec<String>) {
    let (mut taints, mut bad) = (Vec::new(), Vec::new());
    for part in list(text, &[]) {
        match taint(part) {
            Some(taint) => taints.push(taint),
            None => bad.push(format!("{:?}", part.chars().take(80).collect::<String>())),
        }
    }
    (taints, bad)
}

fn taint(text: &str) -> Option<Taint> {
    let (named, effect) = text.rsplit_once(':')?;
    let (key, value) = named.split_once('=').unwrap_or((named, ""));
    let effect = effect.parse().ok()?;
    let plain = |text: &str, more: &[u8]| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.contains(&b);
        text.len() <= 317 && text.bytes().all(allowed)
    };
    let valid = !key.is_empty() && plain(key, b"/") && plain(value, b"");
    valid.then(|| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect,
        since: None,
    })
}

/// A taint in the form of `kubectl taint`.
pub(super) fn shown(taint: &Taint) -> String {
    let effect = taint.effect.as_str();
    let value = match taint.value.as_str() {
        "" => String::new(),
        value => format!("={value}"),
    };
    format!("{}{value}:{effect}", taint.key)
}

/// The taints of a text that are none, as they are shown.
#[must_use]
pub fn bad_taints(text: &str) -> Vec<String> {
    taints(text).1
}

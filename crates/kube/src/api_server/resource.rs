//! Resource types, and the paths of their objects.
//!
//! Every name that comes from an object goes through [`segment`], so that no name can reach a path other than its own.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        authentication::v1::TokenReview,
        authorization::v1::SubjectAccessReview,
        autoscaling::v2::HorizontalPodAutoscaler,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Node, Pod, ResourceQuota, Secret},
        events::v1::Event,
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::CallError;

/// All characters but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// `apiVersion` of its objects.
    pub api_version: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Path segment of its collection.
    pub plural: &'static str,
}

/// The path of one object; displayed as messages name it: `Deployment shop/web`.
#[derive(Debug, Clone, Copy, derive_more::Display)]
#[display("{} {namespace}/{name}", resource.kind)]
pub struct ObjectPath<'a> {
    pub resource: Resource,
    pub namespace: &'a str,
    pub name: &'a str,
}

// === impl Resource ===

impl Resource {
    pub const EHPA: Self = Self {
        api_version: "autoscaling.crane.io/v1alpha1",
        kind: "EffectiveHorizontalPodAutoscaler",
        plural: "effectivehorizontalpodautoscalers",
    };
    pub const FEDERATED_HPA: Self = Self {
        api_version: "autoscaling.foretide.io/v1alpha1",
        kind: "FederatedHPA",
        plural: "federatedhpas",
    };
    pub const PREDICTION: Self = Self {
        api_version: "prediction.crane.io/v1alpha1",
        kind: "TimeSeriesPrediction",
        plural: "timeseriespredictions",
    };
    pub const CLUSTER_PROFILE: Self = Self {
        api_version: "multicluster.x-k8s.io/v1alpha1",
        kind: "ClusterProfile",
        plural: "clusterprofiles",
    };
    pub const SCALED_OBJECT: Self = Self {
        api_version: "keda.sh/v1alpha1",
        kind: "ScaledObject",
        plural: "scaledobjects",
    };
    pub const ACCESS_REVIEW: Self = Self::of::<SubjectAccessReview>();
    pub const API_SERVICE: Self = Self::of::<APIService>();
    pub const CONFIG_MAP: Self = Self::of::<ConfigMap>();
    pub const DEPLOYMENT: Self = Self::of::<Deployment>();
    pub const EVENT: Self = Self::of::<Event>();
    pub const HPA: Self = Self::of::<HorizontalPodAutoscaler>();
    pub const LEASE: Self = Self::of::<Lease>();
    pub const NODE: Self = Self::of::<Node>();
    pub const POD: Self = Self::of::<Pod>();
    pub const QUOTA: Self = Self::of::<ResourceQuota>();
    pub const REPLICA_SET: Self = Self::of::<ReplicaSet>();
    pub const SECRET: Self = Self::of::<Secret>();
    pub const STATEFUL_SET: Self = Self::of::<StatefulSet>();
    pub const TOKEN_REVIEW: Self = Self::of::<TokenReview>();

    const fn of<K: k8s_openapi::Resource>() -> Self {
        Self {
            api_version: K::API_VERSION,
            kind: K::KIND,
            plural: K::URL_PATH_SEGMENT,
        }
    }

    /// The path of the collection, of one namespace or of all.
    pub fn collection(&self, namespace: Option<&str>) -> Result<String, CallError> {
        let root = root(self.api_version)?;
        Ok(match namespace {
            Some(namespace) => format!("{root}/namespaces/{}/{}", segment(namespace)?, self.plural),
            None => format!("{root}/{}", self.plural),
        })
    }

    /// One object of this type.
    pub fn object<'a>(self, namespace: &'a str, name: &'a str) -> ObjectPath<'a> {
        ObjectPath {
            resource: self,
            namespace,
            name,
        }
    }
}

// === impl ObjectPath ===

impl ObjectPath<'_> {
    /// The path of the object.
    pub fn path(&self) -> Result<String, CallError> {
        let collection = self.resource.collection(Some(self.namespace))?;
        Ok(format!("{collection}/{}", segment(self.name)?))
    }
}

/// The path of a group and version, such as `apps/v1` or, for the core group, `v1`.
pub fn root(api_version: &str) -> Result<String, CallError> {
    Ok(match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", segment(group)?, segment(version)?),
        None => format!("/api/{}", segment(api_version)?),
    })
}

/// One name as a path segment.
///
/// # Errors
/// The name is empty, `.` or `..`, or contains `/` or `%`: the API server does not allow such a name either.
pub fn segment(name: &str) -> Result<String, CallError> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
        return Err(CallError::Request(format!(
            "'{name}' cannot be part of a path; a name must not be empty, '.' or '..', and must not contain '/' or '%'"
        )));
    }
    Ok(utf8_percent_encode(name, RESERVED).to_string())
}

/// A query string with its question mark; empty without pairs.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (position, (key, value)) in pairs.iter().enumerate() {
        text.push(if position == 0 { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        text.extend(utf8_percent_encode(value, RESERVED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_own_path_segment() {
        for (name, want) in [
            ("web", Some("web")),
            ("http_requests:rate5m", Some("http_requests%3Arate5m")),
            ("a|b c", Some("a%7Cb%20c")),
            ("*", Some("%2A")),
            ("a?b#c&d", Some("a%3Fb%23c%26d")),
            ("é", Some("%C3%A9")),
            ("...", Some("...")),
            ("", None),
            (".", None),
            ("..", None),
            ("a/b", None),
            ("a%2fb", None),
        ] {
            assert_eq!(segment(name).ok().as_deref(), want, "{name}");
        }
    }

    #[test]
    fn paths_follow_the_group_the_namespace_and_the_name() {
        assert_eq!(Resource::POD.collection(None).unwrap(), "/api/v1/pods");
        assert_eq!(
            Resource::DEPLOYMENT.object("shop", "web").path().unwrap(),
            "/apis/apps/v1/namespaces/shop/deployments/web"
        );
        assert_eq!(query(&[]), "");
        assert_eq!(
            query(&[("labelSelector", "a=b,c in (d)"), ("force", "true")]),
            "?labelSelector=a%3Db%2Cc%20in%20%28d%29&force=true"
        );
    }
}

//! The HPAs of a namespace that concern an autoscaler: its child, one that it adopted, a foreign one of the same
//! target.
//!
//! Pure. The HPAs of a namespace are indexed once for all autoscalers that are due together.

use std::{collections::HashMap, sync::Arc};

use super::child_hpa::{MANAGER, adopted_by, created_for, is_unclaimed};
use foretide_api::ownership::{HUB, MANAGED_BY, Owner, OwnerKind};
use foretide_api::ports::HpaView;
use foretide_domain::{ScaleTarget, api_group};

/// The HPAs of a namespace, by what relates them to an autoscaler; equal ones in the order of their names.
#[derive(Debug, Default)]
pub struct NamespaceHpas {
    /// HPAs by the UID of the object that they were created for.
    created: HashMap<String, Vec<Arc<HpaView>>>,
    /// HPAs by the UID of the object that adopted them.
    adopted: HashMap<String, Vec<Arc<HpaView>>>,
    /// HPAs by the workload that they scale.
    scaling: HashMap<TargetKey, Vec<Arc<HpaView>>>,
    /// HPAs by name.
    named: HashMap<String, Arc<HpaView>>,
}

/// Identity of a scale target within a namespace. The versions of one group name the same object.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TargetKey {
    group: String,
    kind: String,
    name: String,
}

/// The HPAs that concern one scale target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RelatedHpas {
    /// The child that we created.
    pub created: Option<Arc<HpaView>>,
    /// A foreign HPA that we have taken over.
    pub adopted: Option<Arc<HpaView>>,
    /// Another HPA of the same target that is not ours.
    pub foreign: Option<Arc<HpaView>>,
    /// An HPA that is not ours and has the name that our child would have.
    pub name_collision: Option<Arc<HpaView>>,
}

// === impl NamespaceHpas ===

impl NamespaceHpas {
    /// Indexes the HPAs of one namespace, which come in the order of their names.
    pub fn of(hpas: Vec<Arc<HpaView>>) -> Self {
        let mut indexed = Self::default();
        for hpa in hpas {
            for (index, uid) in [
                (&mut indexed.created, created_for(&hpa)),
                (&mut indexed.adopted, adopted_by(&hpa)),
            ] {
                if let Some(uid) = uid {
                    let hpa = Arc::clone(&hpa);
                    index.entry(uid.to_owned()).or_default().push(hpa);
                }
            }
            let (target, same) = (TargetKey::of(&hpa.target), Arc::clone(&hpa));
            indexed.scaling.entry(target).or_default().push(same);
            indexed.named.insert(hpa.name.clone(), hpa);
        }
        indexed
    }

    /// True if the fleet with this UID created or adopted one of the HPAs.
    pub fn has_of_fleet(&self, uid: &str) -> bool {
        self.created.contains_key(uid) || self.adopted.contains_key(uid)
    }
}

// === impl TargetKey ===

impl TargetKey {
    fn of(target: &ScaleTarget) -> Self {
        Self {
            group: api_group(&target.api_version).to_owned(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        }
    }
}

// === impl RelatedHpas ===

impl RelatedHpas {
    /// Sorts the HPAs of a namespace by owner.
    ///
    /// Children of `conflicting`, UIDs of other autoscalers of ours on the same target, are left out: which of those
    /// acts is decided in `conflicts`. `known` is the UID of the child that we wrote last, if that is known.
    pub fn of(
        owner: &Owner,
        target: &ScaleTarget,
        hpas: &NamespaceHpas,
        conflicting: &[String],
        known: Option<&str>,
    ) -> Self {
        let uid = &*owner.uid;
        let name = owner.child_name();
        let named = hpas.named.get(&name);
        let labeled = hpas.created.get(uid).into_iter().flatten();
        let created = labeled
            // A label can be copied to another HPA, the UID and the name of the child cannot. `false` is less than
            // `true`.
            .min_by_key(|hpa| (known != Some(&*hpa.uid), hpa.name != name))
            .or_else(|| named.filter(|hpa| is_stripped(owner, hpa, known)));
        let ours = Self {
            created: created.cloned(),
            adopted: hpas.adopted.get(uid).and_then(|hpas| hpas.first()).cloned(),
            ..Self::default()
        };
        let same_target = hpas.scaling.get(&TargetKey::of(target));
        let foreign = same_target.into_iter().flatten().find(|hpa| {
            let creator = created_for(hpa);
            !ours.has_own(hpa)
                && conflicting
                    .iter()
                    .all(|other| creator != Some(other.as_str()))
        });
        Self {
            foreign: foreign.cloned(),
            name_collision: named.filter(|hpa| !ours.has_own(hpa)).cloned(),
            ..ours
        }
    }

    /// True if we created or adopted an HPA.
    fn has_own(&self, hpa: &HpaView) -> bool {
        self.created.iter().any(|own| own.uid == hpa.uid)
            || self.adopted.iter().any(|own| own.uid == hpa.uid)
    }

    /// Returns true if one of them says that it scaled to zero by itself, so that it would scale up again (Kubernetes
    /// 1.37 and newer).
    pub fn any_scaled_to_zero(&self) -> bool {
        let all = [&self.created, &self.adopted, &self.foreign];
        all.into_iter()
            .flatten()
            .flat_map(|hpa| hpa.status["conditions"].as_array().into_iter().flatten())
            .any(|one| one["type"] == "ScaledToZero" && one["status"] == "True")
    }

    /// The HPA that acts for us.
    pub fn acting(&self) -> Option<&Arc<HpaView>> {
        self.adopted.as_ref().or(self.created.as_ref())
    }
}

/// True if this is the child of a fleet without the label that says so: no controller and no adopter claims it, it has
/// the child's name, and either it is the HPA that we left (`known`) or its other labels say that this hub made it.
// In doubt it is not ours: an HPA of another owner must never be written.
fn is_stripped(owner: &Owner, hpa: &HpaView, known: Option<&str>) -> bool {
    let hub = owner.marks.get(HUB);
    let is_of_this_hub = hub.is_some_and(|hub| hpa.labels[HUB] == **hub);
    let is_marked = is_of_this_hub && hpa.labels[MANAGER] == MANAGED_BY;
    owner.kind == OwnerKind::Federated
        && is_unclaimed(hpa)
        && hpa.name == owner.child_name()
        && (known == Some(&*hpa.uid) || is_marked)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::child_hpa::{
        ADOPTED_BY, ChildSpec, manifest,
        tests::{bounds, child, ehpa, fleet, owner, stored},
    };
    use foretide_api::ownership::FLEET_UID;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    fn controller(uid: &str) -> OwnerReference {
        OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    /// The HPA that is stored in a member of a fleet.
    fn child_of_fleet() -> HpaView {
        let child = ChildSpec::of(&ehpa(None).spec);
        stored(&manifest(&fleet(), &child, bounds(2)))
    }

    #[test]
    fn an_hpa_belongs_to_its_controller_or_adopter_and_is_unclaimed_without_either() {
        let owner = owner();
        let target = stored(&child(None)).target;
        let hpa = |name: &str, uid: Option<&str>, adopter: Option<&str>| {
            let annotations = adopter.map_or(json!({}), |uid| json!({ ADOPTED_BY: uid }));
            let name: String = name.into();
            let controller = uid.map(controller);
            Arc::new(HpaView {
                uid: format!("{name}-{controller:?}-{adopter:?}"),
                name,
                controller,
                annotations,
                ..stored(&child(None))
            })
        };
        for (hpa, whose, unclaimed) in [
            (hpa("any", Some("ours"), None), "created", false),
            (hpa("any", None, Some("ours")), "adopted", false),
            (hpa("any", None, None), "foreign", true),
            (hpa("any", Some("keda"), None), "foreign", false),
            (hpa("any", None, Some("other")), "foreign", false),
            (hpa("any", Some("rival"), None), "", false),
            (hpa("ehpa-web", None, None), "foreign collision", true),
        ] {
            let all = NamespaceHpas::of(vec![Arc::clone(&hpa)]);
            let conflicting = ["rival".to_owned()];
            let found = RelatedHpas::of(&owner, &target, &all, &conflicting, None);
            let is = |which: &str| whose.contains(which).then(|| Arc::clone(&hpa));
            let want = RelatedHpas {
                created: is("created"),
                adopted: is("adopted"),
                foreign: is("foreign"),
                name_collision: is("collision"),
            };
            assert_eq!(found, want, "{}", hpa.uid);
            assert_eq!(is_unclaimed(&hpa), unclaimed, "{}", hpa.uid);
        }
    }

    #[test]
    fn a_child_without_its_label_is_recognized_by_its_uid_or_its_other_labels() {
        let owner = fleet();
        let whole = child_of_fleet();
        let without = |keys: &[&str]| {
            let mut hpa = whole.clone();
            let labels = hpa.labels.as_object_mut().unwrap();
            labels.retain(|key, _| !keys.contains(&key.as_str()));
            hpa
        };
        let with = |hpa: HpaView, key: &str, value: &str| {
            let mut hpa = hpa;
            hpa.labels[key] = value.into();
            hpa
        };
        let bare = without(&[FLEET_UID, HUB, MANAGER]);
        let unlabeled = without(&[FLEET_UID]);
        let of_keda = HpaView {
            controller: Some(controller("keda")),
            ..bare.clone()
        };
        let named_otherwise = HpaView {
            name: "theirs".into(),
            ..unlabeled.clone()
        };
        let (own, other) = (Some("its own"), Some("another"));
        for (hpa, left, ours) in [
            (whole.clone(), None, true),
            (bare.clone(), own, true),
            (bare.clone(), None, false),
            (bare.clone(), other, false),
            (unlabeled.clone(), None, true),
            (with(unlabeled.clone(), HUB, "hub-2"), None, false),
            (with(unlabeled.clone(), MANAGER, "helm"), None, false),
            (with(bare.clone(), FLEET_UID, "of another"), own, false),
            (of_keda, own, false),
            (named_otherwise, None, false),
        ] {
            let shown = format!("{:?} {left:?}", hpa.labels);
            let all = NamespaceHpas::of(vec![Arc::new(hpa)]);
            let found = RelatedHpas::of(&owner, &whole.target, &all, &[], left);
            assert_eq!(found.created.is_some(), ours, "{shown}");
            assert_eq!(found.foreign.is_some(), !ours, "{shown}");
        }
    }

    #[test]
    fn of_two_hpas_with_the_label_of_a_fleet_the_child_is_the_one_with_its_uid_or_name() {
        let owner = fleet();
        let child = child_of_fleet();
        let copy = HpaView {
            name: "a-copy".into(),
            uid: "uid of the copy".into(),
            ..child.clone()
        };
        let moved = HpaView {
            name: "z-other-name".into(),
            ..child.clone()
        };
        for (real, known) in [
            (&child, None),
            (&child, Some(&*child.uid)),
            (&moved, Some(&*child.uid)),
        ] {
            let all = NamespaceHpas::of(vec![Arc::new(copy.clone()), Arc::new(real.clone())]);
            let found = RelatedHpas::of(&owner, &child.target, &all, &[], known);
            assert_eq!(found.created.as_deref(), Some(real), "{known:?}");
            assert_eq!(found.foreign.as_deref(), Some(&copy), "{known:?}");
        }
    }
}

//! The meaning of API objects, and the ports between the controller and the outside.
//!
//! ```text
//! spec ──► validation ──► domain ──► decision ──► status
//!              ports: traits that adapters implement
//! ```
//!
//! [`validation`] converts a spec to domain values or lists every violation; [`status`] renders decisions as fields of a
//! status; [`published`] reads from a status what others may use; [`ownership`] marks and recognizes our objects. [`ports`]
//! takes and returns domain values. Nothing here has a client, a clock or a task.
//!
//! ```
//! use foretide_api::validation;
//! use foretide_crds::EffectiveHorizontalPodAutoscaler;
//! use foretide_domain::cron::Zone;
//!
//! let object: EffectiveHorizontalPodAutoscaler = serde_json::from_value(serde_json::json!({
//!     "apiVersion": "autoscaling.crane.io/v1alpha1",
//!     "kind": "EffectiveHorizontalPodAutoscaler",
//!     "metadata": {"name": "web", "namespace": "shop"},
//!     "spec": {
//!         "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
//!         "minReplicas": 2, "maxReplicas": 1, "scaleStrategy": "Auto",
//!     },
//! }))?;
//! let invalid = validation::workload(&object, &Zone::utc()).unwrap_err();
//! assert!(invalid.to_string().contains("minReplicas"));
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod autoscaler;
pub mod member_reason;
pub mod ownership;
pub mod ports;
pub mod published;
pub mod status;
pub mod validation;

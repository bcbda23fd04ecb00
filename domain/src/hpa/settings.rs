//! The flags of the kube-controller-manager that enter the arithmetic.

use jiff::SignedDuration;

/// The controller's flags.
///
/// ```
/// use foretide_domain::hpa::Settings;
/// use jiff::SignedDuration;
///
/// let settings = Settings {
///     downscale_stabilization: SignedDuration::from_mins(10),
///     ..Settings::default()
/// };
/// assert_eq!(settings.tolerance, 0.1);
/// ```
///
/// # Source
/// The fields with a flag name it; the two of the scale-up limit are constants of `horizontal.go`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How far the ratio may be from 1 without a change, both ways, where `behavior` gives none.
    /// `--horizontal-pod-autoscaler-tolerance`.
    pub tolerance: f64,
    /// How long a recommendation holds a scale-down back, where `behavior` gives no window.
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: SignedDuration,
    /// How long after its start a pod's CPU samples may be ignored.
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: SignedDuration,
    /// How long after its start a pod that turns not ready counts as never ready.
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: SignedDuration,
    /// Without `behavior`: a pass at most multiplies the count by this.
    pub scale_up_limit_factor: f64,
    /// Without `behavior`: a pass may always reach this count.
    pub scale_up_limit_minimum: f64,
    /// When metrics are computed at zero replicas.
    pub zero: ZeroRule,
    /// Whether pod-level resource requests take the place of the containers'.
    pub pod_level_resources: bool,
}

impl Default for Settings {
    /// The defaults of the controller manager's flags, with scale to zero and pod-level requests on.
    fn default() -> Self {
        Self {
            tolerance: 0.1,
            downscale_stabilization: SignedDuration::from_mins(5),
            cpu_initialization_period: SignedDuration::from_mins(5),
            initial_readiness_delay: SignedDuration::from_secs(30),
            scale_up_limit_factor: 2.0,
            scale_up_limit_minimum: 4.0,
            zero: ZeroRule::WhenScaledToZero,
            pod_level_resources: true,
        }
    }
}

/// When metrics are computed for a workload at zero replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRule {
    /// Never: zero is a pause (feature gate `HPAScaleToZero` off).
    Never,
    /// When this autoscaler itself scaled to zero (Kubernetes 1.36 and newer, gate on).
    WhenScaledToZero,
    /// Whenever `minReplicas` is zero, also after a change by a user (before 1.36).
    WhenMinIsZero,
}

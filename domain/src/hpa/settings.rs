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
    /// Distance of the ratio from 1, in both directions, up to which nothing changes, where `behavior` gives none.
    /// `--horizontal-pod-autoscaler-tolerance`.
    pub tolerance: f64,
    /// Time for which a recommendation holds a scale-down back, where `behavior` gives no window.
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: SignedDuration,
    /// Time after the start of a pod in which its CPU samples may be ignored.
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: SignedDuration,
    /// Time after the start of a pod in which one that turns not ready counts as never ready.
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: SignedDuration,
    /// Largest factor by which a pass without `behavior` multiplies the count.
    pub scale_up_limit_factor: f64,
    /// Count that a pass without `behavior` may always reach.
    pub scale_up_limit_minimum: f64,
    /// Rule for the computation of metrics at zero replicas.
    pub zero: ZeroRule,
    /// True if pod-level resource requests take the place of the containers'.
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

/// Rule for the computation of metrics at zero replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRule {
    /// No computation: zero is a pause (feature gate `HPAScaleToZero` off).
    Never,
    /// Computation after this autoscaler itself scaled to zero (Kubernetes 1.36 and newer, gate on).
    WhenScaledToZero,
    /// Computation if `minReplicas` is zero, also after a change by a user (before 1.36).
    WhenMinIsZero,
}

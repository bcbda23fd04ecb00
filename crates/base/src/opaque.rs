//! Values without a text for `Debug`, inside types that have one.

/// A function, an HTTP client or another value that `Debug` shows as `..`.
#[derive(Clone, derive_more::Debug)]
#[debug("..")]
pub struct Opaque<T>(pub T);

// === impl Opaque ===

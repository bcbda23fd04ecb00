//! Values without a text for `Debug`, inside types that have one.

use std::fmt;

/// A function, an HTTP client or another value that `Debug` shows as `..`.
#[derive(Clone)]
pub struct Opaque<T>(pub T);

// === impl Opaque ===

impl<T> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

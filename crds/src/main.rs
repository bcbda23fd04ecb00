//! Prints the manifests of all kinds, for `kubectl apply -f -`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for definition in foretide_crds::definitions() {
        let yaml = foretide_crds::render(&definition).map_err(io::Error::other)?;
        write!(out, "---\n{yaml}")?;
    }
    Ok(())
}

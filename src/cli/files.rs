//! Files that commands read: texts, and manifests in files and directories.

use std::{
    io,
    path::{Path, PathBuf},
};

use foretide_backtest::manifest::{self, Document, YamlError};

/// File name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Reason for which a file gives no objects.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{file}: cannot be read")]
    Read {
        /// Name of the file.
        file: String,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// The file is not text.
    #[error("{file}: not a text file; expected UTF-8")]
    Binary {
        /// Name of the file.
        file: String,
    },
    /// The file is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// The files of a list of files and directories; for a directory, its `.yaml`, `.yml` and `.json` files in the order of
/// their names, without those of subdirectories.
///
/// # Errors
/// A directory cannot be listed.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, ManifestError> {
    let mut all = Vec::new();
    for path in named {
        if path.is_dir() {
            all.extend(listed(path).map_err(|source| unreadable(path, source))?);
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

/// All objects of some files and directories.
///
/// # Errors
/// A file cannot be read, or is not YAML.
pub fn documents(named: &[PathBuf]) -> Result<Vec<Document>, ManifestError> {
    let mut documents = Vec::new();
    for path in files(named)? {
        documents.extend(manifest::parse(&name(&path), &text(&path)?)?);
    }
    Ok(documents)
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read.
pub fn text(path: &Path) -> Result<String, ManifestError> {
    let text = if path.as_os_str() == STANDARD_INPUT {
        io::read_to_string(io::stdin().lock())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => ManifestError::Binary { file: name(path) },
        _ => unreadable(path, source),
    })
}

/// The name of a file in messages.
pub fn name(path: &Path) -> String {
    path.display().to_string()
}

fn listed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.is_file() && matches!(extension, Some("yaml" | "yml" | "json"))
    });
    // The order of a directory depends on the file system.
    paths.sort();
    Ok(paths)
}

fn unreadable(path: &Path, source: io::Error) -> ManifestError {
    let file = name(path);
    ManifestError::Read { file, source }
}

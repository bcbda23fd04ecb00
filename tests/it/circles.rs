//! No imports run in a circle: the files of each crate can be read one after the other.
//!
//! It reads text, not types: the paths of `use` declarations and those in the code that begin with `crate`, `super` or
//! `self`. A name that a module re-exports leads to the file that it comes from. A module and its own children may name
//! each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The path of a module from the root of its crate.
type Module = Vec<String>;

/// The sources of one crate.
#[derive(Debug, Default)]
struct Crate(BTreeMap<Module, Source>);

#[derive(Debug)]
struct Source {
    /// Modules that the file names, from the root of the crate.
    paths: Vec<Module>,
    /// Re-exported names, with the modules that they come from.
    exports: BTreeMap<String, Module>,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut all = Self::default();
        all.read_folder(root, &Vec::new());
        all
    }

    fn read_folder(&mut self, folder: &Path, module: &Module) {
        let entries = fs::read_dir(folder).expect("a readable folder");
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let mut inner = module.clone();
            if !matches!(&*stem, "lib" | "main" | "mod") {
                inner.push(stem.into_owned());
            }
            if path.is_dir() {
                self.read_folder(&path, &inner);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a readable source");
                let source = Source::read(&text, &inner);
                // `main.rs` stands beside `lib.rs`, which cannot name it back.
                self.0.entry(inner).or_insert(source);
            }
        }
    }

    /// The module that a path leads to: the longest one that is a file, or where a name that it re-exports comes from.
    fn find(&self, path: &[String]) -> Option<&Module> {
        let mut path = path.to_vec();
        // A chain of re-exports is no longer than this.
        for _ in 0..8 {
            let depth = (0..=path.len())
                .rev()
                .find(|depth| self.0.contains_key(&path[..*depth]))?;
            let (module, source) = self.0.get_key_value(&path[..depth])?;
            let Some(origin) = path.get(depth).and_then(|name| source.exports.get(name)) else {
                return Some(module);
            };
            let rest = path.split_off(depth + 1);
            path = origin.iter().cloned().chain(rest).collect();
        }
        None
    }

    /// The modules that import each other in circles, and what they import of each other.
    fn circles(&self) -> Vec<String> {
        let related = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
        let mut left: BTreeMap<&Module, BTreeSet<&Module>> = self
            .0
            .iter()
            .map(|(module, source)| {
                let named = source.paths.iter().filter_map(|path| self.find(path));
                let others = named.filter(|other| !related(module, other));
                (module, others.collect())
            })
            .collect();
        // A module that imports none of the rest, or is imported by none of it, is in no circle.
        loop {
            let all: BTreeSet<_> = left.keys().copied().collect();
            let named: BTreeSet<_> = left.values().flatten().copied().collect();
            left.retain(|module, others| {
                others.retain(|other| all.contains(other));
                !others.is_empty() && named.contains(module)
            });
            if left.len() == all.len() {
                break;
            }
        }
        let shown = |module: &Module| module.join("::");
        left.iter()
            .map(|(module, others)| {
                let others: Vec<_> = others.iter().map(|other| shown(other)).collect();
                format!("{} -> {}", shown(module), others.join(", "))
            })
            .collect()
    }
}

impl Source {
    fn read(text: &str, module: &Module) -> Self {
        let code: Vec<_> = text
            .lines()
            .map(super::architecture::without_comment)
            .collect();
        let code = code.join("\n");
        let code = code
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let mut found = Self {
            paths: Vec::new(),
            exports: BTreeMap::new(),
        };
        let declared = code
            .split(';')
            .filter_map(|statement| statement.rsplit_once("mod "));
        let children: BTreeSet<_> = declared.map(|(_, name)| name.trim()).collect();
        for statement in code.split(';') {
            let Some((before, tree)) = statement.rsplit_once("use ") else {
                continue;
            };
            let is_export = before.trim_end().ends_with([')', 'b']) && before.contains("pub");
            for path in leaves(tree) {
                let (path, name) = path.split_once(" as ").unwrap_or((&path, ""));
                let path = path.trim();
                let first = path.split("::").next().unwrap_or_default();
                let from = if children.contains(first) {
                    "self::"
                } else {
                    ""
                };
                let Some(path) = absolute(&format!("{from}{path}"), module) else {
                    continue;
                };
                let last = path.last().cloned().unwrap_or_default();
                if is_export {
                    let name = if name.is_empty() {
                        last
                    } else {
                        name.to_owned()
                    };
                    found.exports.insert(name, path.clone());
                }
                found.paths.push(path);
            }
        }
        for start in ["crate::", "super::", "self::"] {
            for (at, _) in code.match_indices(start) {
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                let path: String = code[at..].chars().take_while(|c| is_path(*c)).collect();
                found
                    .paths
                    .extend(absolute(path.trim_end_matches(':'), module));
            }
        }
        found
    }
}

/// The paths of a `use` tree: `a::{b, c::d}` has `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, group)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let group = group.trim_end().trim_end_matches('}');
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in group.chars() {
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                parts.last_mut().expect("one part").push(c);
            }
        }
    }
    // The closing braces of inner groups at the end were trimmed with those of this group.
    if let Some(last) = parts.last_mut() {
        last.extend(std::iter::repeat_n(
            '}',
            usize::try_from(depth).unwrap_or_default(),
        ));
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    let inner = parts.flat_map(|part| leaves(part));
    inner.map(|leaf| format!("{prefix}{leaf}")).collect()
}

/// A path from the root of the crate; `None` for one of another crate.
fn absolute(path: &str, module: &Module) -> Option<Module> {
    let mut segments = path.trim().split("::").map(str::trim).peekable();
    let mut base = match *segments.peek()? {
        "crate" => Vec::new(),
        "super" | "self" => module.clone(),
        _ => return None,
    };
    for segment in segments {
        match segment {
            "crate" | "self" | "*" => {}
            "super" => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
    }
    Some(base)
}

#[test]
fn no_imports_run_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for place in [
        "src",
        "crates/api/src",
        "crates/backtest/src",
        "crates/base/src",
        "crates/controller/src",
        "crates/federate/src",
        "crates/kube/src",
        "crates/page/src",
        "crates/prometheus/src",
        "crates/servers/src",
        "domain/src",
        "models/src",
        "crds/src",
        "chart/src",
        "replay/src",
        "replay/tool",
    ] {
        let sources = Crate::read(&root.join(place));
        assert!(sources.0.len() > 5, "{place}: {}", sources.0.len());
        assert_eq!(sources.circles(), Vec::<String>::new(), "in {place}");
    }
}

#[test]
fn a_planted_circle_is_found_through_a_re_export() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let mut planted = Crate::default();
    for (name, text) in [
        (
            "a",
            "mod b;\npub(crate) use b::{Thing, inner::{One, Two}};\n",
        ),
        ("a::b", "use crate::c::Other;\n"),
        ("c", "use crate::{a::Thing, d};\n"),
        ("d", "fn f() { crate::e::g() } // crate::c\n"),
        ("e", "//! Names super::d in a comment only.\n"),
    ] {
        let module = module(name);
        planted
            .0
            .insert(module.clone(), Source::read(text, &module));
    }
    assert_eq!(planted.circles(), ["a::b -> c", "c -> a::b"]);
}

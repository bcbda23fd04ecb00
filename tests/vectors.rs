//! Files of vectors, for the tests of the crates that they check.
//!
//! They come from the folder named by `FORETIDE_VECTORS`, else from `tests/data/vectors`. Only the latter must have every
//! group.

use std::{collections::BTreeMap, env, error::Error, fmt::Debug, fs, path::PathBuf};

use serde_json::Value;

pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;
/// The result of one case: `Err` inside has the reason why it was left out.
pub(crate) type Outcome = Fallible<Result<(), &'static str>>;

pub(crate) const RAN: Outcome = Ok(Ok(()));

/// Declares the objects of the JSON. Other fields than these fail, and so does a missing one that is no `Option` and has
/// no `= default`.
macro_rules! shapes {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty $(= $serde:meta)?),+ $(,)? })+) => {$(
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub(crate) struct $name {
            $($(#[serde($serde)])? $field: $type),+
        }
    )+};
}
pub(crate) use shapes;

/// Declares the keys of the files, each with a test and the check of its rows or cases by a function of this module.
macro_rules! gates {
    ($run:ident; $($test:ident: $key:literal => $check:expr;)+) => {
        const KEYS: &[&str] = &[$($key),+];

        $(
            #[test]
            fn $test() -> Fallible<()> {
                $run($key, $check)
            }
        )+
    };
}
pub(crate) use gates;

/// The files whose names begin so.
pub(crate) fn files(prefix: &str) -> Fallible<Vec<Value>> {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/vectors");
    let folder = env::var_os("FORETIDE_VECTORS").map_or_else(|| committed.into(), PathBuf::from);
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(".json") {
            all.push(serde_json::from_str(&fs::read_to_string(&path)?)?);
        }
    }
    Ok(all)
}

/// Checks each case of a group. All failures are reported together, and it is one if no case ran.
pub(crate) fn run(group: &str, cases: &[Value], check: impl Fn(&Value) -> Outcome) -> Fallible<()> {
    let (mut ran, mut failures) = (0, Vec::new());
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, case) in cases.iter().enumerate() {
        match check(case) {
            Ok(Ok(())) => ran += 1,
            Ok(Err(reason)) => *left_out.entry(reason).or_default() += 1,
            Err(e) => {
                let name = ["name", "text", "n"].iter().find_map(|k| case.get(*k));
                let name = name.unwrap_or(&Value::Null);
                failures.push(format!("{group} row {i} {name}: {e}"));
            }
        }
    }
    println!("{group}: {ran} cases, left out: {left_out:?}");
    if !failures.is_empty() {
        return Err(failures.join("\n").into());
    }
    let may_lack = cases.is_empty() && env::var_os("FORETIDE_VECTORS").is_some();
    assert!(ran > 0 || may_lack, "no case of {group} ran");
    Ok(())
}

/// Fails with both values unless they are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "values read better where it is called"
)]
pub(crate) fn same<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Fallible<()> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}: got {got:?}, want {want:?}").into())
}

//! The configuration file of the controller (`--config`).
//!
//! A flag is a field of its name: `--sync-period 30s` becomes `syncPeriod: 30s`, a repeatable flag a list. Its values
//! become the defaults of the flags, so that a flag beats the environment, which beats the file, and each value is
//! checked as the flag's is. The Prometheus servers have sections, because credentials have no flags.
//!
//! ```yaml
//! apiVersion: foretide.io/v1alpha1
//! kind: ControllerConfig
//! syncPeriod: 30s
//! prometheus:
//!   url: https://mimir.example.org/prometheus
//!   bearerTokenFile: /etc/foretide/prometheus/token
//!   headers:
//!   - { name: X-Scope-OrgID, value: team-a }
//! ```

use foretide_kube::Surroundings;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _, parser::ValueSource,
};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::Spanned;

use super::{
    Config,
    args::ControllerArgs,
    error::ConfigError,
    servers::{ServerSection, ServerSections},
};
use foretide_base::error::yaml;

/// The flags that are no fields: the paths of the file and the cluster, and those with sections of their own.
const FLAGS_WITHOUT_FIELD: [&str; 5] = [
    "config",
    "kubeconfig",
    "context",
    "prometheus",
    "prometheus-endpoint",
];

/// The fields that are no flags.
const SECTIONS: [&str; 2] = ["prometheus", "prometheusEndpoints"];

/// The flags whose values are files.
const FLAGS_WITH_FILES: [&str; 1] = ["prometheus-adapter-config"];

/// Content of a configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// The values of flags, by the name of the flag.
    flags: BTreeMap<String, Vec<String>>,
    servers: ServerSections,
}

/// Reason for which a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: std::io::Error,
    },
    /// The file is no configuration.
    #[error("{}{}: {message}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Line of the error, if it is known.
        line: Option<u64>,
        /// Expected content.
        message: String,
    },
    /// The command line cannot be parsed.
    #[error("{0}")]
    Flags(#[from] clap::Error),
}

// === impl ConfigFile ===

impl ConfigFile {
    /// The version of this format.
    pub const API_VERSION: &str = foretide_backtest::API_VERSION;
    /// The kind of this format.
    pub const KIND: &str = foretide_backtest::CONFIG_KIND;

    /// Reads a file. Relative paths in it start at its folder.
    ///
    /// # Errors
    /// The file cannot be read, or is no configuration.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|source| FileError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// The configuration in the text of the file at `path`.
    ///
    /// # Errors
    /// [`FileError::Content`], with the first field that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        let content = |(line, message)| FileError::Content {
            path: path.to_owned(),
            line,
            message,
        };
        let read: Result<Document, _> = serde_saphyr::from_str(text);
        let Document(read) = read.map_err(|error| content(yaml(&error, text)))?;
        let mut file = read.map_err(|problem| content((Some(problem.line), problem.message)))?;
        // `join` leaves an absolute path as it is.
        let folder = path.parent().unwrap_or(Path::new(""));
        for named in file.servers.files_mut() {
            *named = folder.join(&*named);
        }
        let flags = file.flags.iter_mut();
        for (_, values) in flags.filter(|(flag, _)| FLAGS_WITH_FILES.contains(&flag.as_str())) {
            for value in values {
                *value = folder.join(&*value).display().to_string();
            }
        }
        Ok(file)
    }

    /// The arguments of a command line (the first word is the program), with the values of the file where neither a
    /// flag nor the environment gives one.
    ///
    /// # Errors
    /// The command line cannot be parsed.
    pub fn complete(&self, args: &[OsString]) -> Result<ControllerArgs, FileError> {
        self.complete_from(command(), args)
    }

    fn complete_from(
        &self,
        command: Command,
        args: &[OsString],
    ) -> Result<ControllerArgs, FileError> {
        // A first pass without the file finds the values of flags and environment.
        let given = command.clone().try_get_matches_from(args)?;
        let command = self.flags.iter().fold(
            command,
            |command: Command, (flag, values): (&String, &Vec<String>)| {
                if conflicts_with_given(&command, flag, &given) {
                    return command;
                }
                command.mut_args(|arg| {
                    if arg.get_long() == Some(flag) {
                        arg.default_values(values.clone())
                    } else {
                        arg
                    }
                })
            },
        );
        let mut matches = command.try_get_matches_from(args)?;
        let mut completed = ControllerArgs::from_arg_matches_mut(&mut matches)?;
        completed.servers = self.servers.clone();
        Ok(completed)
    }

    /// The configuration of this file alone, without flags and environment, for checking it.
    ///
    /// # Errors
    /// A value that cannot be used, or cannot be used together with another one.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.config_with(&[])
    }

    /// The configuration of this file with flags that beat the file, for commands that read the same sources as the
    /// controller.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn config_with(&self, flags: &[&str]) -> Result<Config, ConfigError> {
        let words: Vec<OsString> = ["foretide"]
            .iter()
            .chain(flags)
            .map(OsString::from)
            .collect();
        let mut args = self
            .complete_from(without_environment(command()), &words)
            .map_err(|error| ConfigError::Section {
                field: "file".to_owned(),
                message: error.to_string(),
            })?;
        // The file is meant for a pod, no matter where it is read.
        args.kube.surroundings = Surroundings::POD;
        Config::try_from(args)
    }

    /// Returns whether a configuration can have a field of this name.
    pub fn has_field(name: &str) -> bool {
        SECTIONS.contains(&name) || fields(&command()).any(|(flag, _)| field_of(flag) == name)
    }

    /// The files with credentials that the configuration names.
    pub fn credential_files(&self) -> Vec<PathBuf> {
        let mut servers = self.servers.clone();
        servers.files_mut().map(|path| path.clone()).collect()
    }
}

impl ControllerArgs {
    /// Returns the arguments of the process completed by the values of its configuration file, if it has one.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn with_file(self) -> Result<Self, FileError> {
        let Some(path) = &self.config else {
            return Ok(self);
        };
        // The subcommand takes the place of the program.
        let args: Vec<OsString> = std::env::args_os().skip(1).collect();
        ConfigFile::read(path)?.complete(&args)
    }
}

/// The flags of the controller.
fn command() -> Command {
    ControllerArgs::augment_args(Command::new("foretide controller"))
}

fn without_environment(command: Command) -> Command {
    command.mut_args(|arg| arg.env(None::<&str>))
}

/// Returns whether a flag that excludes this one is given: it beats the file, too.
fn conflicts_with_given(command: &Command, flag: &str, given: &ArgMatches) -> bool {
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(flag));
    let excluded = arg.map(|arg| command.get_arg_conflicts_with(arg));
    excluded.into_iter().flatten().any(|arg| {
        let source = given.value_source(arg.get_id().as_str());
        matches!(
            source,
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
    })
}

/// The name of the field for a flag: `sync-period` becomes `syncPeriod`.
fn field_of(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut field = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        field.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        field.push_str(letters.as_str());
    }
    field
}

/// The flags that are fields.
fn fields(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_long()?, arg)))
        .filter(|(flag, _)| !FLAGS_WITHOUT_FIELD.contains(flag))
}

/// The problem of a value, if there is one, in the words of the flag's parser.
fn invalid_value(command: &Command, flag: &str, values: &[String]) -> Option<String> {
    let flags = values.iter().map(|value| format!("--{flag}={value}"));
    let words = std::iter::once("foretide".to_owned()).chain(flags);
    let text = without_environment(command.clone())
        .try_get_matches_from(words)
        .err()?
        .to_string();
    let reason = text.trim_start_matches("error: ").split("\n\n").next();
    let lines = reason.unwrap_or_default().lines().map(str::trim);
    Some(lines.collect::<Vec<_>>().join(" "))
}

/// A document, or its first invalid field. Errors of serde have no place, so they are kept with their lines.
struct Document(Result<ConfigFile, Problem>);

/// A flag with its values.
type FlagValues = (String, Vec<String>);

/// The problem of a field, with its line.
struct Problem {
    line: u64,
    message: String,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor { command: command() })
    }
}

/// Reads the fields that the flags define.
struct FileVisitor {
    command: Command,
}

impl<'de> Visitor<'de> for FileVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} of {}", ConfigFile::KIND, ConfigFile::API_VERSION)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Document, M::Error> {
        let mut file = ConfigFile::default();
        let mut identity = [None, None];
        while let Some(field) = map.next_key::<Spanned<String>>()? {
            match &*field.value {
                "apiVersion" => identity[0] = Some(map.next_value::<String>()?),
                "kind" => identity[1] = Some(map.next_value::<String>()?),
                "prometheus" => file.servers.hub = map.next_value::<ServerSection>()?,
                "prometheusEndpoints" => file.servers.named = map.next_value()?,
                _ => match self.flag(&field.value, &mut map)? {
                    Ok((flag, values)) => {
                        file.flags.insert(flag, values);
                    }
                    Err(message) => {
                        let line = field.referenced.line();
                        return drain(map, Problem { line, message });
                    }
                },
            }
        }
        let wanted = [ConfigFile::API_VERSION, ConfigFile::KIND].map(|text| Some(text.to_owned()));
        // The chart writes both; a file without both can be nothing else here.
        if identity != wanted && identity != [None, None] {
            return Err(M::Error::custom(format!(
                "expected apiVersion: {} and kind: {}",
                ConfigFile::API_VERSION,
                ConfigFile::KIND
            )));
        }
        Ok(Document(Ok(file)))
    }
}

/// Reads the rest of an invalid document.
fn drain<'de, M: MapAccess<'de>>(mut map: M, problem: Problem) -> Result<Document, M::Error> {
    while map.next_entry::<String, IgnoredAny>()?.is_some() {}
    Ok(Document(Err(problem)))
}

// === impl FileVisitor ===

impl FileVisitor {
    /// The flag of a field, with its values; or their problem.
    fn flag<'de, M: MapAccess<'de>>(
        &self,
        field: &str,
        map: &mut M,
    ) -> Result<Result<FlagValues, String>, M::Error> {
        let found = fields(&self.command).find(|(flag, _)| field_of(flag) == field);
        let Some((flag, arg)) = found else {
            map.next_value::<IgnoredAny>()?;
            return Ok(Err(format!(
                "unknown field {field}; expected prometheus, prometheusEndpoints, or a flag such as syncPeriod for \
                 --sync-period ({} --help lists them)",
                self.command.get_name()
            )));
        };
        let takes_no_value = arg
            .get_num_args()
            .is_some_and(|count| count.min_values() == 0);
        let values = match arg.get_action() {
            ArgAction::Append => map.next_value::<Vec<String>>()?,
            _ if takes_no_value => vec![map.next_value::<bool>()?.to_string()],
            _ => vec![map.next_value::<String>()?],
        };
        Ok(match invalid_value(&self.command, flag, &values) {
            Some(message) => Err(format!("{field}: {message}")),
            None => Ok((flag.to_owned(), values)),
        })
    }
}

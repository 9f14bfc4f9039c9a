//! The table of faults (`tests/faults.tsv`) and the broken variants of the program (`tests/broken.toml`), as the test
//! that keeps them whole and the runner read them. It runs nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why table or variants are of no use.
#[derive(Debug, thiserror::Error)]
pub enum FaultsError {
    /// A file can't be read.
    #[error("{path} can't be read: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line of the table has another shape.
    #[error("tests/faults.tsv, line {line}: four columns are wanted, separated by tabs: id, target, test, variant (or id, -, -, reason)")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// The variants can't be read.
    #[error("tests/broken.toml: {0}")]
    Variants(#[from] toml::de::Error),
    /// A variant's text isn't there just once.
    #[error("variant {variant}: its text occurs {times} times in {file}, and has to occur once; adapt it in tests/broken.toml: {find}")]
    Find {
        /// The variant.
        variant: String,
        /// The file it changes.
        file: String,
        /// What was looked for.
        find: String,
        /// How often it was there.
        times: usize,
    },
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A test that stands for a fault.
    Tested {
        /// The fault's id, as in `A1`.
        id: String,
        /// The test.
        test: Test,
        /// Name of the variant against which it must fail.
        variant: String,
    },
    /// A fault without a test.
    Not {
        /// The fault's id.
        id: String,
        /// Why.
        reason: String,
    },
}

impl Line {
    /// The fault's id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Tested { id, .. } | Self::Not { id, .. } => id,
        }
    }
}

/// A test, by its package, its target and its name with modules, as `cargo test` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Test {
    /// As in `tokscope-collector`.
    pub package: String,
    /// A file or folder of the package's `tests`, or `lib`.
    pub target: String,
    /// As in `faults::sending::name`.
    pub name: String,
}

impl Test {
    /// The package's folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.package.strip_prefix("tokscope-").unwrap_or(&self.package)
    }

    /// The file it should be in, from the checkout's root, and the function's own name.
    #[must_use]
    pub fn source(&self, root: &Path) -> (PathBuf, &str) {
        let (modules, function) = self.name.rsplit_once("::").unwrap_or(("", &self.name));
        let package = root.join(self.folder());
        let single = package.join("tests").join(format!("{}.rs", self.target));
        if self.target != "lib" && single.is_file() {
            return (single, function);
        }
        let top = if self.target == "lib" { package.join("src") } else { package.join("tests").join(&self.target) };
        let mut modules: Vec<&str> = modules.split("::").filter(|module| !module.is_empty()).collect();
        // The innermost ones may be inline.
        while !modules.is_empty() {
            let path: PathBuf = modules.iter().collect();
            let candidates = [top.join(&path).with_extension("rs"), top.join(&path).join("mod.rs")];
            if let Some(found) = candidates.into_iter().find(|path| path.is_file()) {
                return (found, function);
            }
            modules.pop();
        }
        (top.join(if self.target == "lib" { "lib.rs" } else { "main.rs" }), function)
    }
}

/// The program with one thing wrong.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name, unique.
    pub name: String,
    /// What is wrong with it, in a sentence.
    pub what: String,
    /// Changes that make it so.
    pub edits: Vec<Edit>,
    /// Whether the tests may hang instead of failing.
    #[serde(default)]
    pub may_hang: bool,
}

/// A change of one file.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// From the checkout's root.
    pub file: String,
    /// Occurs once in it.
    pub find: String,
    /// What stands there instead.
    pub put: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Variants {
    variant: Vec<Variant>,
}

impl Variant {
    /// The files it changes, as they are then: path from the root, and text.
    ///
    /// # Errors
    /// A file that can't be read, a text that doesn't occur just once.
    pub fn broken(&self, root: &Path) -> Result<Vec<(String, String)>, FaultsError> {
        let mut files: Vec<(String, String)> = Vec::new();
        for Edit { file, find, put } in &self.edits {
            if !files.iter().any(|(name, _)| name == file) {
                files.push((file.clone(), read(&root.join(file))?));
            }
            for (_, text) in files.iter_mut().filter(|(name, _)| name == file) {
                let times = text.matches(find.as_str()).count();
                if times != 1 {
                    return Err(FaultsError::Find { variant: self.name.clone(), file: file.clone(), find: find.clone(), times });
                }
                *text = text.replacen(find.as_str(), put, 1);
            }
        }
        Ok(files)
    }
}

fn read(path: &Path) -> Result<String, FaultsError> {
    fs::read_to_string(path).map_err(|source| FaultsError::Read { path: path.to_owned(), source })
}

/// The table's lines, without its head.
///
/// # Errors
/// It can't be read, or a line has another shape.
pub fn table(root: &Path) -> Result<Vec<Line>, FaultsError> {
    let text = read(&root.join("tests/faults.tsv"))?;
    text.lines().enumerate().skip(1).map(|(at, line)| parse(line).ok_or(FaultsError::Line { line: at + 1 })).collect()
}

fn parse(line: &str) -> Option<Line> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [id, target, test, last] = columns[..] else { return None };
    let (id, last) = (id.to_owned(), last.to_owned());
    if target == "-" && test == "-" {
        return Some(Line::Not { id, reason: last });
    }
    let (package, target) = target.split_once('/')?;
    let test = Test { package: package.to_owned(), target: target.to_owned(), name: test.to_owned() };
    Some(Line::Tested { id, test, variant: last })
}

/// The broken variants.
///
/// # Errors
/// They can't be read.
pub fn variants(root: &Path) -> Result<Vec<Variant>, FaultsError> {
    let text = read(&root.join("tests/broken.toml"))?;
    Ok(toml::from_str::<Variants>(&text)?.variant)
}

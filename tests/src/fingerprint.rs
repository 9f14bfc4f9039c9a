//! The fingerprint of what the page is built from. `dist/` holds the one it was built with, so that a
//! test can say, with Rust alone, whether it is current. It says nothing of the tools; `dist` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// The packages whose sources are part of the page, with their folders.
const PACKAGES: [(&str, &str); 2] = [("tokscope-viewer", "viewer"), ("tokscope-shared", "shared")];

/// Folders inside a package that never reach the page.
const LEFT_OUT: [&str; 7] = ["benches", "examples", "fixtures", "proptest-regressions", "snapshots", "target", "tests"];

/// Why a fingerprint could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum FingerprintError {
    /// A file or folder could not be read.
    #[error("{path} can't be read: {source}; run this in a whole checkout")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A manifest or the lock file is no TOML.
    #[error("{path} is no TOML: {source}; mend it or restore it from the repository")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// The lock file lacks a package that another one asks for.
    #[error("Cargo.lock holds no package {0}; run `cargo metadata` to bring it up to date")]
    NotLocked(String),
}

/// The fingerprint of the checkout in `root`, as 64 hexadecimal digits.
///
/// It is the SHA-256 over, in this order: every file of the packages that can reach the page, by path;
/// of the top manifest, what those packages take from it and the page's profile; of `Cargo.lock`, name,
/// version and checksum of every package the page can depend on.
///
/// # Errors
/// Where a file can't be read or parsed, or the lock file does not fit the manifests.
pub fn of_checkout(root: &Path) -> Result<String, FingerprintError> {
    let mut hash = Sha256::new();
    for (_, folder) in PACKAGES {
        let mut files = Vec::new();
        collect_files(&root.join(folder), &mut files)?;
        // Sorted by the path's text, which is the same everywhere.
        let named: BTreeMap<String, PathBuf> = files.into_iter().map(|path| (relative_name(root, &path), path)).collect();
        for (name, path) in named {
            add(&mut hash, &name, &read(&path)?);
        }
    }
    let needs = direct_needs(root)?;
    add(&mut hash, "manifest", manifest_part(&parse(&root.join("Cargo.toml"))?, &needs).as_bytes());
    add(&mut hash, "lock", lock_part(&parse(&root.join("Cargo.lock"))?, &needs)?.as_bytes());
    Ok(hex(&hash.finalize()))
}

/// The SHA-256 of `bytes`, as 64 hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Name and length go in front, so that no two lists of files look alike.
fn add(hash: &mut Sha256, name: &str, bytes: &[u8]) {
    hash.update(format!("{name}\0{}\0", bytes.len()));
    hash.update(bytes);
}

fn read(path: &Path) -> Result<Vec<u8>, FingerprintError> {
    fs::read(path).map_err(|source| FingerprintError::Read { path: path.to_owned(), source })
}

fn parse(path: &Path) -> Result<Table, FingerprintError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    text.parse().map_err(|source| FingerprintError::Parse { path: path.to_owned(), source: Box::new(source) })
}

fn relative_name(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

fn collect_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), FingerprintError> {
    let failed = |source| FingerprintError::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type().map_err(failed)?.is_dir() {
            if !name.starts_with('.') && !LEFT_OUT.contains(&name.as_ref()) {
                collect_files(&entry.path(), into)?;
            }
        } else if !name.starts_with('.') {
            into.push(entry.path());
        }
    }
    Ok(())
}

/// What each package of the page depends on directly, by package; what only its tests need is not in it.
fn direct_needs(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, FingerprintError> {
    let mut needs = BTreeMap::new();
    for (package, folder) in PACKAGES {
        let manifest = parse(&root.join(folder).join("Cargo.toml"))?;
        let names = ["dependencies", "build-dependencies"]
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table())
            .flat_map(|section| section.keys().cloned())
            .collect();
        needs.insert(package.to_owned(), names);
    }
    Ok(needs)
}

/// What the page takes from the top manifest, as text.
fn manifest_part(manifest: &Table, needs: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut text = String::new();
    let at = |keys: &[&str]| keys.iter().try_fold(manifest, |table, key| table.get(*key).and_then(Value::as_table));
    for keys in [&["workspace", "package"][..], &["profile", "release"], &["profile", "page"]] {
        if let Some(table) = at(keys) {
            write_table(table, &keys.join("."), &mut text);
        }
    }
    if let Some(dependencies) = at(&["workspace", "dependencies"]) {
        let wanted: BTreeSet<&String> = needs.values().flatten().collect();
        for name in wanted {
            if let Some(value) = dependencies.get(name.as_str()) {
                write_value(value, name, &mut text);
            }
        }
    }
    text
}

/// A line a value, keys sorted: comments, blanks and order in the file do not count.
fn write_table(table: &Table, path: &str, text: &mut String) {
    let sorted: BTreeMap<&String, &Value> = table.iter().collect();
    for (key, value) in sorted {
        write_value(value, &format!("{path}.{key}"), text);
    }
}

fn write_value(value: &Value, path: &str, text: &mut String) {
    match value {
        Value::Table(table) => write_table(table, path, text),
        other => {
            let _ = writeln!(text, "{path} = {other}");
        }
    }
}

/// Name, version and checksum of every package the page can depend on, on whatever target.
fn lock_part(lock: &Table, needs: &BTreeMap<String, BTreeSet<String>>) -> Result<String, FingerprintError> {
    let packages: Vec<&Table> = lock.get("package").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect();
    let mut waiting = vec![PACKAGES[0].0.to_owned()];
    let mut seen = BTreeSet::new();
    let mut lines = BTreeSet::new();
    while let Some(wanted) = waiting.pop() {
        if !seen.insert(wanted.clone()) {
            continue;
        }
        // "name", or "name version" where the file holds several, and the source where that's not enough.
        let mut words = wanted.split(' ');
        let (name, version) = (words.next(), words.next());
        let found = packages
            .iter()
            .find(|package| text(package, "name") == name && (version.is_none() || text(package, "version") == version))
            .ok_or_else(|| FingerprintError::NotLocked(wanted.clone()))?;
        let found_name = text(found, "name").unwrap_or_default();
        let ours = needs.get(found_name);
        // Our own packages change version with every release; their sources are in the fingerprint.
        if ours.is_none() {
            lines.insert(format!(
                "{found_name} {} {}\n",
                text(found, "version").unwrap_or_default(),
                text(found, "checksum").unwrap_or_default()
            ));
        }
        let dependencies = found.get("dependencies").and_then(Value::as_array);
        for dependency in dependencies.into_iter().flatten().filter_map(Value::as_str) {
            let bare = dependency.split(' ').next().unwrap_or_default();
            if ours.is_none_or(|names| names.contains(bare)) {
                waiting.push(dependency.to_owned());
            }
        }
    }
    Ok(lines.into_iter().collect())
}

fn text<'a>(package: &'a Table, key: &str) -> Option<&'a str> {
    package.get(key).and_then(Value::as_str)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A checkout with the least a fingerprint needs.
    fn small_checkout() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "Cargo.toml",
            "[workspace.package]\nversion = \"1.0.0\"\n[workspace.dependencies]\nused = \"1\"\nother = \"1\"\n[profile.page]\nopt-level = \"z\"\n[profile.dev]\ndebug = 1\n",
        );
        put(
            "Cargo.lock",
            "[[package]]\nname = \"tokscope-viewer\"\nversion = \"1.0.0\"\ndependencies = [\"tokscope-shared\", \"used\"]\n[[package]]\nname = \"tokscope-shared\"\nversion = \"1.0.0\"\ndependencies = [\"other\", \"used\"]\n[[package]]\nname = \"used\"\nversion = \"1.0.1\"\nchecksum = \"aa\"\ndependencies = [\"deep\"]\n[[package]]\nname = \"deep\"\nversion = \"1.0.2\"\nchecksum = \"bb\"\n[[package]]\nname = \"other\"\nversion = \"1.0.3\"\nchecksum = \"cc\"\n",
        );
        put("viewer/Cargo.toml", "[dependencies]\nused.workspace = true\ntokscope-shared.workspace = true\n");
        put("viewer/index.html", "<p>");
        put("viewer/src/main.rs", "fn main() {}");
        put("shared/Cargo.toml", "[dependencies]\nused.workspace = true\n[dev-dependencies]\nother.workspace = true\n");
        put("shared/src/lib.rs", "");
        put("shared/tests/all.rs", "");
        root
    }

    fn after(path: &str, from: &str, to: &str) -> bool {
        let root = small_checkout();
        let before = of_checkout(root.path()).unwrap();
        let file = root.path().join(path);
        let old = fs::read_to_string(&file).unwrap_or_default();
        assert!(old.contains(from), "{path} holds no {from}");
        fs::write(&file, old.replacen(from, to, 1)).unwrap();
        of_checkout(root.path()).unwrap() != before
    }

    #[test]
    fn whatever_reaches_the_page_changes_the_fingerprint() {
        assert!(after("viewer/index.html", "<p>", "<p> "));
        assert!(after("shared/src/lib.rs", "", "//"));
        assert!(after("viewer/src/new.rs", "", ""));
        assert!(after("Cargo.toml", "\"z\"", "\"s\""));
        assert!(after("Cargo.toml", "used = \"1\"", "used = \"1.0\""));
        assert!(after("Cargo.lock", "\"bb\"", "\"bc\""));
    }

    #[test]
    fn what_only_tests_or_other_packages_need_does_not() {
        assert!(!after("shared/tests/all.rs", "", "//"));
        assert!(!after("Cargo.toml", "other = \"1\"", "other = \"1.0\""));
        assert!(!after("Cargo.toml", "debug = 1", "debug = 2"));
        assert!(!after("Cargo.toml", "[profile.dev]", "# why\n[profile.dev]"));
        assert!(!after("Cargo.lock", "\"cc\"", "\"cd\""));
    }

    #[test]
    fn a_lock_file_without_a_needed_package_is_named() {
        let root = small_checkout();
        fs::write(root.path().join("Cargo.lock"), "version = 4\n").unwrap();
        let error = of_checkout(root.path()).unwrap_err().to_string();
        assert!(error.contains("tokscope-viewer"), "{error}");
    }
}

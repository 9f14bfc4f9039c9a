//! Which report files a host offers, and under which names. New files in a folder appear by themselves.

use std::path::{Path, PathBuf};

/// Files and folders named by the user.
#[derive(Clone, Debug, Default)]
pub struct Library {
    roots: Vec<PathBuf>,
}

/// A file on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the list, unique.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// Files with these ends are offered; the page says of each what it is.
const ENDS: [&str; 2] = ["json", "jsonl"];

impl Library {
    /// Of these files, and of the reports directly in these folders.
    ///
    /// # Errors
    /// The first path that isn't there.
    pub fn new(roots: Vec<PathBuf>) -> Result<Self, PathBuf> {
        match roots.iter().find(|path| !path.exists()) {
            Some(missing) => Err(missing.clone()),
            None => Ok(Library { roots }),
        }
    }

    /// What is there now, by name.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut add = |path: PathBuf| {
            let Some(size) = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len()) else { return };
            if entries.iter().any(|entry| entry.path == path) {
                return;
            }
            let plain = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let taken = |name: &String| entries.iter().any(|entry| entry.name == *name);
            let numbered = |n: u32| if n == 1 { plain.clone() } else { format!("{n}-{plain}") };
            if let Some(name) = (1..).map(numbered).find(|name| !taken(name)) {
                entries.push(Entry { name, size, path });
            }
        };
        for root in &self.roots {
            if root.is_dir() {
                reports_in(root).into_iter().for_each(&mut add);
            } else {
                add(root.clone());
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    /// The file of that name; only names in the list have one.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.entries().into_iter().find(|entry| entry.name == name).map(|entry| entry.path)
    }
}

/// Report files directly in the folder. Links are not followed out of it, checkpoints and hidden files are left out.
pub fn reports_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(items) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = items
        .filter_map(Result::ok)
        .filter(|item| item.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|item| item.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            let end = name.rsplit('.').next().unwrap_or_default();
            ENDS.contains(&end) && !name.starts_with('.') && !name.ends_with(".resume.json")
        })
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_offers_its_reports_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.jsonl", "x.txt", ".hidden.json", "b.json.resume.json"] {
            std::fs::write(dir.path().join(name), "{}").unwrap();
        }
        std::fs::create_dir(dir.path().join("sub.json")).unwrap();
        let outside = tempfile::NamedTempFile::with_suffix(".json").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link.json")).unwrap();
        let library = Library::new(vec![dir.path().to_owned(), dir.path().join("b.json")]).unwrap();
        let names = |library: &Library| library.entries().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(names(&library), ["a.jsonl", "b.json"]);
        std::fs::write(dir.path().join("new.json"), "{}").unwrap();
        assert_eq!(names(&library), ["a.jsonl", "b.json", "new.json"]);
        assert_eq!(library.path("../b.json"), None);
        assert_eq!(library.path(".hidden.json"), None);
    }

    #[test]
    fn files_of_one_name_are_told_apart_and_missing_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["one", "two"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
            std::fs::write(dir.path().join(sub).join("a.json"), sub).unwrap();
        }
        let library = Library::new(vec![dir.path().join("one/a.json"), dir.path().join("two/a.json")]).unwrap();
        let read = |name| std::fs::read_to_string(library.path(name).unwrap()).unwrap();
        assert_eq!((read("a.json"), read("2-a.json")), ("one".to_owned(), "two".to_owned()));
        let missing = dir.path().join("no.json");
        assert_eq!(Library::new(vec![missing.clone()]).unwrap_err(), missing);
    }
}

//! Where a report goes: a free name, found out before anything is measured, and written whole or not at all.

use rustix::fs::{FlockOperation, flock};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a checkpoint's name ends in.
const CHECKPOINT: &str = ".resume.json";

/// The name where none is given.
const DEFAULT_STEM: &str = "benchmark_results";

/// Why there is no place for a report.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file or a checkpoint is there.
    #[error("--output {0}: there is a file of that name; choose another name, or give --overwrite to replace it")]
    Taken(PathBuf),
    /// The checkpoint of a run that isn't finished is there.
    #[error("--output {0}: there is a run of that name that isn't finished; go on with it by --resume, or give --overwrite to begin anew")]
    Unfinished(PathBuf),
    /// A run that still goes on has that name.
    #[error("--output {0}: another tokscope is measuring into it; choose another name, or wait for its end")]
    InUse(PathBuf),
    /// The run to be gone on with has a checkpoint there, but the report is another one's.
    #[error("--output {0}: that report is of another run than the checkpoint beside it; give --overwrite as well to replace it")]
    Another(PathBuf),
    /// The name is a folder.
    #[error("--output {}: that is a folder; name a file in it, as in {}", .0.display(), .0.join("report.json").display())]
    Folder(PathBuf),
    /// Something that is no file.
    #[error("--output {0}: that is a device or a pipe; name a file")]
    NoFile(PathBuf),
    /// The folder can't be written to.
    #[error("--output {}: nothing can be written to {}: {source}; create the folder or choose another", .path.display(), folder(.path).display())]
    NotWritable {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing failed after the measurement.
    #[error("the report could not be written to {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A place for a report that was free, or may be replaced, and can be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    path: PathBuf,
    overwrite: bool,
    /// What stands there is of this very run: it is replaced also by a partial report.
    ours: bool,
}

impl Output {
    /// The place named, or the first free one of `benchmark_results.json`, `benchmark_results-2.json` ...
    ///
    /// # Errors
    /// A name that is taken (unless `overwrite`), a folder, a place that can't be written to. Nothing is left
    /// behind in any case.
    pub fn claim(named: Option<&Path>, overwrite: bool) -> Result<Self, OutputError> {
        let mut path = match named {
            Some(path) => path.to_owned(),
            None => free_name(),
        };
        if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(OutputError::Folder(path));
        }
        if path.exists() && !path.is_file() {
            return Err(OutputError::NoFile(path));
        }
        // A link stays one: what it points to is replaced.
        if let Ok(real) = path.canonicalize() {
            path = real;
        } else if let Ok(target) = path.read_link() {
            path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
        }
        if is_in_use(&checkpoint_of(&path)) {
            return Err(OutputError::InUse(path));
        }
        if !overwrite && checkpoint_of(&path).exists() {
            return Err(OutputError::Unfinished(path));
        }
        if !overwrite && path.exists() {
            return Err(OutputError::Taken(path));
        }
        probe(&path).map_err(|source| OutputError::NotWritable { path: path.clone(), source })?;
        Ok(Output { path, overwrite, ours: false })
    }

    /// The place of a run that goes on: what it left there is replaced.
    ///
    /// # Errors
    /// The report there is another run's (unless `overwrite`), or the place can't be written to.
    pub fn go_on(path: PathBuf, run_id: &str, overwrite: bool) -> Result<Self, OutputError> {
        let ours = is_of(&path, run_id);
        if path.exists() && !ours && !overwrite {
            return Err(OutputError::Another(path));
        }
        probe(&path).map_err(|source| OutputError::NotWritable { path: path.clone(), source })?;
        Ok(Output { path, overwrite, ours })
    }

    /// The run's checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        checkpoint_of(&self.path)
    }

    /// Takes away what a partial report of this run left beside the name, now that there is a whole one.
    pub fn remove_partial(&self, run_id: &str) {
        let partial = beside(&self.path, ".partial.json");
        if is_of(&partial, run_id) {
            // Nothing depends on it.
            let _ = std::fs::remove_file(partial);
        }
    }

    /// The file as asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a finished report, or a partial one. Gives the file that was written: a partial report never
    /// replaces a file that stood there before, it goes beside it.
    ///
    /// # Errors
    /// The disk is full or the folder is gone; what stood at the place before still does.
    pub fn write(&self, text: &str, complete: bool) -> Result<PathBuf, OutputError> {
        let mut path = self.path.clone();
        if !complete && self.overwrite && !self.ours && path.exists() {
            path = beside(&path, ".partial.json");
        }
        match write_whole(&path, text, self.overwrite || self.ours || path != self.path) {
            // Somebody took the name while we measured: the report is worth more than the name.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let other = (2..).map(|n| numbered(&path, n)).find(|path| !taken(path)).unwrap_or_else(|| path.clone());
                write_whole(&other, text, false).map_err(|source| OutputError::Write { path: other.clone(), source })?;
                Ok(other)
            }
            Err(source) => Err(OutputError::Write { path, source }),
            Ok(()) => Ok(path),
        }
    }
}

/// Held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

/// Waits until nothing is half written, and lets nothing be written from then on. For whoever ends the program at once.
pub fn hold_still() {
    std::mem::forget(WRITING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Writes a file that is replaced again and again: under another name first, which a killed process leaves to the next
/// one. When it returns, name and bytes are on the disk; the file is locked as long as what is returned lives.
///
/// # Errors
/// What the system says. What stood there before still does.
pub fn replace_for_good(path: &Path, text: &str) -> std::io::Result<std::fs::File> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let write = || -> std::io::Result<std::fs::File> {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Where locks are unknown there is none.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        std::fs::rename(&temporary, path)?;
        Ok(file)
    };
    let file = write().inspect_err(|_| drop(std::fs::remove_file(&temporary)))?;
    // Some network folders can't be synced; the bytes are there under their name.
    let _ = sync_folder(path);
    Ok(file)
}

/// A new name is on the disk only when its folder is.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder(path))?.sync_all()
}

fn write_whole(path: &Path, text: &str, replace: bool) -> std::io::Result<()> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tokscope-");
    // A temporary file is private; a report is as readable as any file the user makes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder(path)).map_err(|error| without_name(&error))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    if replace { file.persist(path).map(drop) } else { file.persist_noclobber(path).map(drop) }.map_err(|error| error.error)?;
    // The bytes are there under their name. Some network folders can't be synced.
    let _ = sync_folder(path);
    Ok(())
}

/// What the system said, without the name of the temporary file, which nobody asked for.
fn without_name(error: &std::io::Error) -> std::io::Error {
    let text = error.to_string();
    text.split_once(" at path ").map_or(error.kind().into(), |(said, _)| std::io::Error::new(error.kind(), said))
}

/// Tries the folder and, where it is free, the very name.
fn probe(path: &Path) -> std::io::Result<()> {
    tempfile::Builder::new().prefix(".tokscope-").tempfile_in(folder(path)).map_err(|error| without_name(&error))?;
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// A name is taken where the report or its checkpoint exists.
fn taken(path: &Path) -> bool {
    path.exists() || checkpoint_of(path).exists()
}

/// Whether a run that goes on in another process writes this checkpoint: its lock ends with the process.
pub fn is_in_use(checkpoint: &Path) -> bool {
    let Ok(file) = std::fs::File::open(checkpoint) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// A report's checkpoint.
pub fn checkpoint_of(report: &Path) -> PathBuf {
    beside(report, CHECKPOINT)
}

/// The report whose checkpoint this is, by its name.
pub fn report_of(checkpoint: &Path) -> Option<PathBuf> {
    let name = checkpoint.file_name()?.to_str()?.strip_suffix(CHECKPOINT)?;
    (!name.is_empty()).then(|| checkpoint.with_file_name(name))
}

/// Whether the file is a report of this run.
fn is_of(path: &Path, run_id: &str) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let Ok(report) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return false };
    report["tokscope"]["run_id"] == run_id
}

fn free_name() -> PathBuf {
    let first = PathBuf::from(format!("{DEFAULT_STEM}.json"));
    if !taken(&first) {
        return first;
    }
    (2..).map(|n| numbered(&first, n)).find(|path| !taken(path)).unwrap_or(first)
}

/// `name.json` as `name-2.json`.
fn numbered(path: &Path, n: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{stem}-{n}{extension}"))
}

/// `name.json` as `name.json.resume.json`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_taken_name_is_refused_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, "old").unwrap();
        assert!(matches!(Output::claim(Some(&path), false), Err(OutputError::Taken(_))));
        assert!(matches!(Output::claim(Some(dir.path()), true), Err(OutputError::Folder(_))));
        let nowhere = dir.path().join("no/such/a.json");
        let refused = Output::claim(Some(&nowhere), false).unwrap_err();
        assert!(matches!(refused, OutputError::NotWritable { .. }));
        let (folder, said) = (dir.path().join("no/such").display().to_string(), std::io::Error::from_raw_os_error(2));
        let want = format!("--output {folder}/a.json: nothing can be written to {folder}: {said}; create the folder or choose another");
        assert_eq!(refused.to_string(), want, "the folder and the system's words, and no name of a temporary file");
        let resumable = dir.path().join("b.json");
        std::fs::write(dir.path().join("b.json.resume.json"), "{}").unwrap();
        assert!(matches!(Output::claim(Some(&resumable), false), Err(OutputError::Unfinished(_))));
        assert!(Output::claim(Some(&resumable), true).is_ok());
        let too_long = dir.path().join(format!("{}.json", "x".repeat(300)));
        assert!(matches!(Output::claim(Some(&too_long), false), Err(OutputError::NotWritable { .. })));
        assert!(matches!(Output::claim(Some(&dir.path().join("c.json/")), false), Err(OutputError::Folder(_))));
        assert!(matches!(Output::claim(Some(Path::new("/dev/null")), true), Err(OutputError::NoFile(_))));
        Output::claim(Some(&dir.path().join("free.json")), false).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_stays_one_also_where_it_points_to_a_file_that_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("latest.json");
        std::os::unix::fs::symlink("first.json", &link).unwrap();
        let output = Output::claim(Some(&link), false).unwrap();
        assert_eq!(output.write("one", true).unwrap(), dir.path().join("first.json"));
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "one");
        assert!(link.is_symlink());
    }

    #[test]
    fn a_partial_report_never_replaces_a_finished_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, "old").unwrap();
        let output = Output::claim(Some(&path), true).unwrap();
        assert_eq!(output.write("part", false).unwrap(), dir.path().join("a.json.partial.json"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(output.write("new", true).unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_run_that_goes_on_replaces_what_is_its_own_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, r#"{"tokscope": {"run_id": "abc"}}"#).unwrap();
        assert!(matches!(Output::go_on(path.clone(), "xyz", false), Err(OutputError::Another(_))));
        let output = Output::go_on(path.clone(), "abc", false).unwrap();
        assert_eq!(output.write("part", false).unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "part");
        std::fs::write(dir.path().join("a.json.partial.json"), r#"{"tokscope": {"run_id": "abc"}}"#).unwrap();
        output.remove_partial("xyz");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        output.remove_partial("abc");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(report_of(&output.checkpoint()), Some(path));
        assert_eq!(report_of(Path::new("x/.resume.json")), None);
    }

    #[test]
    fn a_checkpoint_is_replaced_whole_and_a_killed_process_leaves_nothing_that_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json.resume.json");
        std::fs::write(dir.path().join(".a.json.resume.json.tmp"), "half").unwrap();
        for text in ["one", "two"] {
            replace_for_good(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace_for_good(&dir.path().join("gone/a.json"), "three").is_err());
    }

    #[test]
    fn a_name_taken_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let output = Output::claim(Some(&path), false).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        assert_eq!(output.write("ours", true).unwrap(), dir.path().join("a-2.json"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
    }
}

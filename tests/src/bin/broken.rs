//! Runs the tests of known faults against the program as it is, where they must pass, and each against a broken
//! variant, where it must fail. Works on a copy of the checkout in `target/broken`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tokscope_tests::checkout;
use tokscope_tests::faults::{Line, Test, Variant, table, variants};

/// For one test.
const LIMIT: Duration = Duration::from_secs(90);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let ids: Vec<String> = std::env::args().skip(1).collect();
    match run(&ids) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every test passed and failed as it should. `ids`: only these faults.
fn run(ids: &[String]) -> Outcome<bool> {
    let began = Instant::now();
    let root = checkout();
    let lines = table(&root)?;
    if let Some(unknown) = ids.iter().find(|id| !lines.iter().any(|line| line.id() == *id)) {
        return Err(format!("there is no fault {unknown} in tests/faults.tsv; usage: tests/broken.sh [ID...]").into());
    }
    let chosen: Vec<(&str, &Test, &str)> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Tested { id, test, variant } if ids.is_empty() || ids.contains(id) => Some((id.as_str(), test, variant.as_str())),
            _ => None,
        })
        .collect();
    let copy = Copy::of(&root)?;
    let tests: BTreeSet<&Test> = chosen.iter().map(|(_, test, _)| *test).collect();
    println!("the program as it is: {} tests", tests.len());
    let programs = copy.build(&tests)?;
    let mut well = true;
    for test in &tests {
        if let Run::Failed(why) | Run::Hung(why) = copy.test(&programs, test)? {
            println!("{} fails although nothing is broken:\n{why}", test.name);
            well = false;
        }
    }
    if !well {
        return Ok(false);
    }
    println!("all pass, after {} s\n\nid\tvariant\ttest\tresult", began.elapsed().as_secs());
    for variant in variants(&root)? {
        let against: Vec<_> = chosen.iter().filter(|(_, _, name)| *name == variant.name).collect();
        if against.is_empty() {
            continue;
        }
        let tests: BTreeSet<&Test> = against.iter().map(|(_, test, _)| *test).collect();
        let results = copy.broken(&variant, &tests)?;
        for (id, test, _) in against {
            let (fails, result) = verdict(&results[*test], variant.may_hang);
            well &= fails;
            println!("{id}\t{}\t{}\t{result}", variant.name, test.name);
        }
    }
    println!("\n{}, after {} s", if well { "every test fails where it should" } else { "NOT every test fails where it should" }, {
        began.elapsed().as_secs()
    });
    Ok(well)
}

fn verdict(run: &Run, may_hang: bool) -> (bool, String) {
    match run {
        Run::Failed(_) => (true, "fails as it should".to_owned()),
        Run::Hung(_) if may_hang => (true, "hangs as it may".to_owned()),
        Run::Hung(why) => (false, format!("HANGS: {why}")),
        Run::Passed => (false, "PASSES, although the program is broken".to_owned()),
    }
}

/// How a test went.
enum Run {
    Passed,
    /// By an assertion; what it printed.
    Failed(String),
    Hung(String),
}

/// Test programs by package and target.
type Programs = BTreeMap<(String, String), PathBuf>;

/// The copy of the checkout.
struct Copy {
    root: PathBuf,
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Makes it, or brings it up to date: files that are the same keep their time, so that little is built anew.
    fn of(root: &Path) -> Outcome<Self> {
        let folder = root.join("target/broken");
        let copy = Self { root: root.to_owned(), tree: folder.join("tree"), build: folder.join("build") };
        let listed = Command::new("git").args(["ls-files", "-z", "-co", "--exclude-standard"]).current_dir(root).output()?;
        if !listed.status.success() {
            return Err("git can't list the checkout's files".into());
        }
        let names: BTreeSet<PathBuf> =
            listed.stdout.split(|b| *b == 0).filter(|n| !n.is_empty()).map(|n| String::from_utf8_lossy(n).into_owned().into()).collect();
        fs::create_dir_all(&copy.tree)?;
        copy.remove_others(&copy.tree, &names)?;
        for name in &names {
            match fs::read(root.join(name)) {
                Ok(bytes) => copy.put(name, &bytes)?,
                // Deleted, but not from git yet.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(copy)
    }

    fn remove_others(&self, folder: &Path, names: &BTreeSet<PathBuf>) -> Outcome<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if !names.contains(path.strip_prefix(&self.tree)?) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn put(&self, name: &Path, bytes: &[u8]) -> Outcome<()> {
        let to = self.tree.join(name);
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        fs::create_dir_all(to.parent().unwrap_or(&self.tree))?;
        Ok(fs::write(to, bytes)?)
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).stdin(Stdio::null());
        cargo
    }

    /// Builds what the tests need.
    fn build(&self, tests: &BTreeSet<&Test>) -> Outcome<Programs> {
        let mut programs = Programs::new();
        let packages: BTreeSet<&str> = tests.iter().map(|test| test.package.as_str()).collect();
        for package in packages {
            let mut cargo = self.cargo();
            cargo.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics", "-p", package]);
            let targets: BTreeSet<&str> = tests.iter().filter(|test| test.package == package).map(|test| test.target.as_str()).collect();
            for target in targets {
                match target {
                    "lib" => cargo.arg("--lib"),
                    _ => cargo.args(["--test", target]),
                };
            }
            let built = cargo.stderr(Stdio::piped()).output()?;
            if !built.status.success() {
                return Err(format!("{package} can't be built:\n{}", String::from_utf8_lossy(&built.stderr)).into());
            }
            for message in String::from_utf8_lossy(&built.stdout).lines() {
                let message: serde_json::Value = serde_json::from_str(message)?;
                let (target, program) = (&message["target"], &message["executable"]);
                if let (Some(name), Some(program), true) = (target["name"].as_str(), program.as_str(), message["profile"]["test"] == true) {
                    let name = if target["kind"][0] == "lib" { "lib" } else { name };
                    programs.insert((package.to_owned(), name.to_owned()), program.into());
                }
            }
            // Those tests start the program itself; a failing build of it is no failing test.
            if package == "tokscope-tests" {
                let built = self.cargo().args(["build", "--locked", "-p", "tokscope-collector", "--bin", "tokscope"]).output()?;
                if !built.status.success() {
                    return Err(format!("the program can't be built:\n{}", String::from_utf8_lossy(&built.stderr)).into());
                }
            }
        }
        Ok(programs)
    }

    fn test(&self, programs: &Programs, test: &Test) -> Outcome<Run> {
        let program = programs.get(&(test.package.clone(), test.target.clone()));
        let program = program.ok_or_else(|| format!("there is no test target {} in {}", test.target, test.package))?;
        let printed = tempfile::NamedTempFile::new()?;
        let mut child = Command::new(program)
            .args([&test.name, "--exact"])
            .current_dir(self.tree.join(test.folder()))
            .env("CARGO_TARGET_DIR", &self.build)
            .stdin(Stdio::null())
            .stdout(printed.reopen()?)
            .stderr(printed.reopen()?)
            // What it starts ends with it.
            .process_group(0)
            .spawn()?;
        let until = Instant::now() + LIMIT;
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > until {
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // Its own group: nobody else's processes are in it.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let text = fs::read_to_string(printed.path())?;
        let Some(status) = ended else {
            child.wait()?;
            return Ok(Run::Hung(format!("no end within {} s", LIMIT.as_secs())));
        };
        if !text.contains("running 1 test\n") {
            return Err(format!("{} has no test {}:\n{text}", program.display(), test.name).into());
        }
        if status.success() {
            return Ok(Run::Passed);
        }
        let by_assertion = text.split("panicked at ").skip(1).any(|place| self.is_of_a_test(place, test));
        if !by_assertion {
            return Err(format!("{} fails, but not by an assertion of its own:\n{text}", test.name).into());
        }
        Ok(Run::Failed(text))
    }

    /// Whether a panic's place is in the test's file, or in what its target's tests share.
    fn is_of_a_test(&self, place: &str, test: &Test) -> bool {
        let file = place.split(':').next().unwrap_or_default();
        let source = test.source(&self.tree).0;
        self.tree.join(file) == source || (test.target != "lib" && file.starts_with(&format!("{}/tests/", test.folder())))
    }

    /// Tests against a broken program; it is whole again afterwards.
    fn broken<'a>(&self, variant: &Variant, tests: &BTreeSet<&'a Test>) -> Outcome<BTreeMap<&'a Test, Run>> {
        let files = variant.broken(&self.root)?;
        for (name, text) in &files {
            self.put(Path::new(name), text.as_bytes())?;
        }
        let results = self.build(tests).and_then(|programs| {
            let run = |test: &&'a Test| Ok((*test, self.test(&programs, test)?));
            tests.iter().map(run).collect::<Outcome<BTreeMap<_, _>>>()
        });
        for (name, _) in &files {
            self.put(Path::new(name), &fs::read(self.root.join(name))?)?;
        }
        results.map_err(|error| format!("variant {}: {error}", variant.name).into())
    }
}

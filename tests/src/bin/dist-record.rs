//! Writes and checks `dist/BUILD.json` for `tests/build-dist.sh`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tokscope_tests::checkout;
use tokscope_tests::dist::BuildRecord;

const USAGE: &str = "usage: dist-record write DIST TOOL=VERSION... [--brotli FILE=BYTES...]
       dist-record tools DIST TOOL=VERSION...   (says which tools differ from the record's; exit 3)
       dist-record verify DIST                  (compares sources and files with the record; exit 1)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let [command, dist, rest @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let dist = Path::new(dist);
    let split = rest.iter().position(|argument| argument == "--brotli").unwrap_or(rest.len());
    let tools = pairs(&rest[..split])?;
    match command.as_str() {
        "write" => {
            let mut sizes = BTreeMap::new();
            for (file, bytes) in pairs(rest.get(split + 1..).unwrap_or_default())? {
                sizes.insert(file, bytes.parse()?);
            }
            BuildRecord::take(&checkout(), dist, tools, &sizes)?.write(dist)?;
            Ok(ExitCode::SUCCESS)
        }
        "tools" => Ok(tell(&BuildRecord::read(dist)?.other_tools(&tools), 3)),
        "verify" => {
            let record = BuildRecord::read(dist)?;
            let found = BuildRecord::take(&checkout(), dist, BTreeMap::new(), &BTreeMap::new())?;
            Ok(tell(&record.differences(&found), 1))
        }
        _ => Err(USAGE.into()),
    }
}

fn tell(lines: &[String], code: u8) -> ExitCode {
    for line in lines {
        println!("{line}");
    }
    ExitCode::from(if lines.is_empty() { 0 } else { code })
}

fn pairs(arguments: &[String]) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    arguments
        .iter()
        .map(|argument| {
            argument
                .split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .ok_or_else(|| format!("{argument:?} is no NAME=VALUE\n{USAGE}").into())
        })
        .collect()
}

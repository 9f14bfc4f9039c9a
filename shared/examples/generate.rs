//! Writes what is generated from the types and tables: METRICS.md, the JSON Schema and the list of shapes.
//! Run it after changing them: `cargo run -p tokscope-shared --example generate`.

#[path = "../tests/generated/mod.rs"]
mod generated;

fn main() -> std::io::Result<()> {
    for (path, text) in generated::files() {
        std::fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}

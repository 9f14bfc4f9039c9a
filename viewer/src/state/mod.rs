//! What the reader has chosen, as signals, and its part in the address. Nothing here draws.

pub mod fragment;
pub mod host;

use crate::data::library::{Entry, Id, Library};
use leptos::prelude::*;
use std::sync::Arc;

/// The places of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The list of reports, or the first screen where there are none.
    Library,
    /// One report.
    Run,
}

/// Which colours are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Those of the system.
    #[default]
    Auto,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// Its name, in the document and in the browser's storage.
    pub fn name(self) -> &'static str {
        match self {
            Theme::Auto => "auto",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    /// The theme of that name; any other is the system's.
    pub fn from_name(name: &str) -> Self {
        match name {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::Auto,
        }
    }

    /// The next one round.
    pub fn next(self) -> Self {
        match self {
            Theme::Auto => Theme::Light,
            Theme::Light => Theme::Dark,
            Theme::Dark => Theme::Auto,
        }
    }
}

/// A cell that is open in the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// Of `results`.
    Decode(usize),
    /// Of `burst_results`.
    Burst(usize),
}

impl Inspected {
    /// As the page names it in its markup.
    pub fn name(self) -> String {
        match self {
            Inspected::Decode(index) => format!("decode-{index}"),
            Inspected::Burst(index) => format!("burst-{index}"),
        }
    }

    /// The cell of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let (layer, index) = name.split_once('-')?;
        let index = index.parse().ok()?;
        match layer {
            "decode" => Some(Inspected::Decode(index)),
            "burst" => Some(Inspected::Burst(index)),
            _ => None,
        }
    }
}

/// All that is chosen and loaded.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The reports.
    pub library: RwSignal<Library>,
    /// Where the reader is.
    pub place: RwSignal<Place>,
    /// The report that is shown.
    pub selected: RwSignal<Option<Id>>,
    /// The metric wanted, by name; a report without it shows another.
    pub metric: RwSignal<String>,
    /// Row and column of the matrix that is asked about.
    pub asked: RwSignal<Option<(usize, usize)>>,
    /// The cell whose details are open.
    pub inspected: RwSignal<Option<Inspected>>,
    /// Colours.
    pub theme: RwSignal<Theme>,
    /// Whether the system's colours are dark.
    pub system_dark: RwSignal<bool>,
    /// Width of the window in pixels.
    pub width: RwSignal<f64>,
    /// Whether files are held over the window.
    pub dragging: RwSignal<bool>,
    /// Whether the list of keys is open.
    pub help: RwSignal<bool>,
    /// Files being read or fetched.
    pub busy: RwSignal<usize>,
    /// The last thing that happened, for the line that says it.
    pub said: RwSignal<String>,
    /// What the host lists.
    pub hosted: RwSignal<Vec<host::Hosted>>,
}

impl State {
    /// Nothing loaded, nothing chosen.
    pub fn new() -> Self {
        State {
            library: RwSignal::new(Library::default()),
            place: RwSignal::new(Place::Library),
            selected: RwSignal::new(None),
            metric: RwSignal::new("aggregate-tps".to_owned()),
            asked: RwSignal::new(None),
            inspected: RwSignal::new(None),
            theme: RwSignal::new(Theme::Auto),
            system_dark: RwSignal::new(false),
            width: RwSignal::new(1200.0),
            dragging: RwSignal::new(false),
            help: RwSignal::new(false),
            busy: RwSignal::new(0),
            said: RwSignal::new(String::new()),
            hosted: RwSignal::new(Vec::new()),
        }
    }

    /// The report that is shown.
    pub fn run(self) -> Option<Arc<Entry>> {
        let id = self.selected.get()?;
        self.library.with(|library| library.get(id))
    }

    /// Shows a report.
    pub fn show(self, id: Id) {
        if self.selected.get_untracked() != Some(id) {
            self.asked.set(None);
            self.inspected.set(None);
            self.selected.set(Some(id));
        }
        self.place.set(Place::Run);
    }

    /// Whether colours are dark now.
    pub fn dark(self) -> bool {
        match self.theme.get() {
            Theme::Auto => self.system_dark.get(),
            theme => theme == Theme::Dark,
        }
    }

    /// Adds files that arrived together. One good file is shown at once; otherwise the list is, with what failed.
    pub fn add(self, files: Vec<Arrived>) {
        let alone = files.len() == 1;
        let (mut last, mut good, mut bad) = (None, 0, 0);
        self.library.update(|library| {
            for file in files {
                let added = match &file.bytes {
                    Ok(bytes) => library.add(&file.name, file.address.as_deref(), bytes).id(),
                    Err(reason) => {
                        library.fail(&file.name, reason);
                        None
                    }
                };
                good += usize::from(added.is_some());
                bad += usize::from(added.is_none());
                last = added.or(last);
            }
        });
        let reports = |n: usize| if n == 1 { "1 report".to_owned() } else { format!("{n} reports") };
        self.said.set(match (good, bad) {
            (good, 0) => format!("{} opened", reports(good)),
            (0, bad) => format!("{bad} not readable"),
            (good, bad) => format!("{} opened, {bad} not readable", reports(good)),
        });
        match last {
            Some(id) if alone => self.show(id),
            _ => self.place.set(Place::Library),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

/// A file that was dropped, picked or fetched.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its name.
    pub name: String,
    /// Where on the host it came from, if it did.
    pub address: Option<String>,
    /// Its bytes, or why there are none.
    pub bytes: Result<Vec<u8>, String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn arrived(name: &str, bytes: &[u8]) -> Arrived {
        Arrived { name: name.to_owned(), address: None, bytes: Ok(bytes.to_vec()) }
    }

    #[test]
    fn one_good_file_is_shown_and_again_when_it_is_given_again() {
        let state = State::new();
        state.add(vec![arrived("a.json", crate::data::sample())]);
        assert_eq!(state.place.get_untracked(), Place::Run);
        let first = state.selected.get_untracked();
        state.place.set(Place::Library);
        state.add(vec![arrived("again.json", crate::data::sample())]);
        assert_eq!((state.place.get_untracked(), state.selected.get_untracked()), (Place::Run, first));
        assert_eq!(state.library.with_untracked(|library| library.entries().len()), 1);
    }

    #[test]
    fn of_several_files_the_list_is_shown_with_those_that_failed() {
        let state = State::new();
        let unread = Arrived { name: "folder".to_owned(), address: None, bytes: Err("a folder".to_owned()) };
        state.add(vec![arrived("a.json", crate::data::sample()), arrived("b.json", b"{"), unread]);
        assert_eq!(state.place.get_untracked(), Place::Library);
        assert_eq!(state.said.get_untracked(), "1 report opened, 2 not readable");
        let failed = state.library.with_untracked(|library| library.failed().to_vec());
        assert_eq!(failed.iter().map(|failed| failed.name.as_str()).collect::<Vec<_>>(), ["b.json", "folder"]);
    }

    #[test]
    fn another_report_closes_what_was_open_in_the_one_before() {
        let state = State::new();
        state.add(vec![arrived("a.json", crate::data::sample())]);
        state.asked.set(Some((2, 0)));
        state.inspected.set(Some(Inspected::Decode(2)));
        state.add(vec![arrived("b.json", &[crate::data::sample(), b"\n"].concat())]);
        assert_eq!((state.asked.get_untracked(), state.inspected.get_untracked()), (None, None));
    }

    #[test]
    fn cells_are_found_by_their_names() {
        for cell in [Inspected::Decode(0), Inspected::Burst(12)] {
            assert_eq!(Inspected::from_name(&cell.name()), Some(cell));
        }
        assert_eq!(Inspected::from_name("decode-x"), None);
    }

    #[test]
    fn themes_go_round_and_keep_their_names() {
        let mut theme = Theme::Auto;
        for _ in 0..3 {
            assert_eq!(Theme::from_name(theme.name()), theme);
            theme = theme.next();
        }
        assert_eq!(theme, Theme::Auto);
    }
}

//! Charts as SVG by plotters, with the place of every point, so that a page can put hover and keyboard on top.
//! Only drawing: which numbers are drawn is the caller's.

use crate::metric::format_number;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Written beside its last point.
    pub label: String,
    /// x, y and whether the number can be believed.
    pub points: Vec<(f64, f64, bool)>,
}

/// A chart of lines over a common x axis, with a zero baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What the y axis shows, with its unit.
    pub y_head: String,
    /// What the x axis shows.
    pub x_head: String,
    /// Places on the x axis that are labelled.
    pub ticks: Vec<(f64, String)>,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Colours, as red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Text.
    pub ink: (u8, u8, u8),
    /// Less important text.
    pub faint: (u8, u8, u8),
    /// Grid.
    pub grid: (u8, u8, u8),
    /// Behind the chart, for hollow points.
    pub paper: (u8, u8, u8),
    /// The lines: safe for colour-blind readers (after Okabe and Ito), in the order in which they are given out.
    pub lines: [(u8, u8, u8); 8],
}

impl Theme {
    /// On white.
    pub const LIGHT: Theme = Theme {
        ink: (28, 32, 36),
        faint: (98, 106, 114),
        grid: (226, 229, 232),
        paper: (255, 255, 255),
        lines: [(0, 92, 158), (184, 74, 0), (0, 122, 92), (158, 68, 120), (110, 92, 0), (38, 130, 170), (120, 60, 20), (70, 76, 84)],
    };
    /// On black.
    pub const DARK: Theme = Theme {
        ink: (226, 230, 234),
        faint: (146, 154, 162),
        grid: (44, 49, 54),
        paper: (20, 23, 26),
        lines: [
            (92, 180, 240),
            (240, 150, 64),
            (64, 200, 160),
            (226, 142, 192),
            (226, 206, 74),
            (140, 214, 244),
            (216, 164, 120),
            (176, 184, 192),
        ],
    };
}

/// A point as drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Index of its line.
    pub line: usize,
    /// Index in the line.
    pub index: usize,
    /// Pixels from the left.
    pub x: f64,
    /// Pixels from the top.
    pub y: f64,
}

/// A drawn chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The SVG document.
    pub svg: String,
    /// Its points.
    pub marks: Vec<Mark>,
}

const FONT: f64 = 12.0;

/// Draws lines into an SVG of that size in pixels. Without a single point it says so in the middle.
pub fn lines(spec: &Lines, theme: &Theme, width: u32, height: u32) -> Chart {
    let mut svg = String::new();
    let mut marks = Vec::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        // Writing SVG into a string cannot fail.
        let _ = draw(spec, theme, (f64::from(width), f64::from(height)), &area, &mut marks);
        let _ = area.present();
    }
    Chart { svg, marks }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(spec: &Lines, theme: &Theme, (width, height): (f64, f64), area: &Area<'_>, marks: &mut Vec<Mark>) -> Drawn {
    let rgb = |(r, g, b): (u8, u8, u8)| RGBColor(r, g, b);
    let text = |text: &str, (x, y): (f64, f64), colour: (u8, u8, u8), h: HPos, v: VPos| {
        let style = ("system-ui, sans-serif", FONT).into_font().color(&rgb(colour)).pos(Pos::new(h, v));
        area.draw(&Text::new(text.to_owned(), (x.round() as i32, y.round() as i32), style))
    };
    let stroke = |from: (f64, f64), to: (f64, f64), colour: (u8, u8, u8)| {
        let ends = [from, to].map(|(x, y)| (x.round() as i32, y.round() as i32));
        area.draw(&PathElement::new(ends.to_vec(), rgb(colour)))
    };
    let points = || spec.lines.iter().flat_map(|line| &line.points);
    let top_value = points().map(|point| point.1).fold(0.0, f64::max);
    if points().next().is_none() || top_value <= 0.0 {
        text("no values to draw", (width / 2.0, height / 2.0), theme.faint, HPos::Center, VPos::Center)?;
        return Ok(());
    }
    let step = nice_step(top_value / 4.0);
    let ceiling = (top_value / step).ceil() * step;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let widest = format_number(ceiling, decimals).chars().count() as f64;
    let (left, right) = (widest * 7.0 + 12.0, width - 52.0);
    let (top, bottom) = (26.0, height - 38.0);
    let xs = || points().map(|point| point.0).chain(spec.ticks.iter().map(|tick| tick.0));
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    let x_of = |x: f64| if high > low { left + 8.0 + (x - low) / (high - low) * (right - left - 8.0) } else { f64::midpoint(left, right) };
    let y_of = |y: f64| bottom - y / ceiling * (bottom - top);

    text(&spec.y_head, (0.0, 4.0), theme.faint, HPos::Left, VPos::Top)?;
    text(&spec.x_head, (right, height - 4.0), theme.faint, HPos::Right, VPos::Bottom)?;
    for i in 0..=(ceiling / step).round() as usize {
        let value = i as f64 * step;
        stroke((left, y_of(value)), (right, y_of(value)), if i == 0 { theme.faint } else { theme.grid })?;
        text(&format_number(value, decimals), (left - 6.0, y_of(value)), theme.faint, HPos::Right, VPos::Center)?;
    }
    let mut free_from = f64::NEG_INFINITY;
    for (x, label) in &spec.ticks {
        let (at, half) = (x_of(*x), label.chars().count() as f64 * 3.5);
        stroke((at, bottom), (at, bottom + 4.0), theme.faint)?;
        if at - half >= free_from {
            text(label, (at, bottom + 7.0), theme.faint, HPos::Center, VPos::Top)?;
            free_from = at + half + 6.0;
        }
    }
    for (i, line) in spec.lines.iter().enumerate() {
        let colour = rgb(theme.lines[i % theme.lines.len()]);
        let path: Vec<(i32, i32)> = line.points.iter().map(|p| (x_of(p.0).round() as i32, y_of(p.1).round() as i32)).collect();
        area.draw(&PathElement::new(path, colour.stroke_width(1)))?;
        for (index, (x, y, believed)) in line.points.iter().enumerate() {
            let (px, py) = (x_of(*x), y_of(*y));
            let at = (px.round() as i32, py.round() as i32);
            area.draw(&Circle::new(at, 3, if *believed { colour.filled() } else { rgb(theme.paper).filled() }))?;
            area.draw(&Circle::new(at, 3, colour.stroke_width(1)))?;
            marks.push(Mark { line: i, index, x: px, y: py });
        }
    }
    for (i, y) in label_places(spec, y_of, top, bottom) {
        let line = &spec.lines[i];
        let x = line.points.last().map_or(right, |p| x_of(p.0));
        text(&line.label, (x + 8.0, y), theme.lines[i % theme.lines.len()], HPos::Left, VPos::Center)?;
    }
    Ok(())
}

/// Where the lines' labels go: beside their last points, pushed apart so that none covers another.
fn label_places(spec: &Lines, y_of: impl Fn(f64) -> f64, top: f64, bottom: f64) -> Vec<(usize, f64)> {
    let mut places: Vec<(usize, f64)> = Vec::new();
    for (i, line) in spec.lines.iter().enumerate() {
        let Some(y) = line.points.last().map(|point| y_of(point.1)) else { continue };
        // In order from the top.
        let at = places.iter().position(|place| place.1 > y).unwrap_or(places.len());
        places.insert(at, (i, y));
    }
    let mut free_from = top - FONT;
    for place in &mut places {
        place.1 = place.1.max(free_from);
        free_from = place.1 + FONT + 1.0;
    }
    let mut free_to = bottom + FONT / 2.0;
    for place in places.iter_mut().rev() {
        place.1 = place.1.min(free_to);
        free_to = place.1 - FONT - 1.0;
    }
    places
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that isn't below.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

//! What a run found, as a picture in a file of its own: latencies by percentile, and what each second saw.

use super::{
    axis::{Axis, escaped, round_step},
    meter::{LatencySummary, Second},
    report::Report,
};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 870.0;
const PANEL: f64 = 190.0;
/// From the foot of a panel to the head of the next: the numbers below, a heading, a line of air.
const BETWEEN: f64 = 70.0;

const STYLE: &str = "
svg.bench { --back: #ffffff; --ink: #1f2937; --faint: #d1d5db; --c0: #2563eb; --c1: #c2410c; --c2: #15803d; --c3: #7e22ce;
  background: var(--back); font: 13px system-ui, sans-serif }
@media (prefers-color-scheme: dark) {
  svg.bench { --back: #111827; --ink: #e5e7eb; --faint: #374151; --c0: #60a5fa; --c1: #fb923c; --c2: #4ade80; --c3: #d8b4fe } }
svg.bench text { fill: var(--ink) }
svg.bench .title { font-size: 18px; font-weight: 600 }
svg.bench .head { font-weight: 600 }
svg.bench .end { text-anchor: end }
svg.bench .middle { text-anchor: middle }
svg.bench .grid { stroke: var(--faint); fill: none }
svg.bench .line { fill: none; stroke-width: 2 }
";

/// What is drawn of a report.
pub struct Picture {
    /// What the load was.
    pub title: String,
    pub curves: Vec<(&'static str, LatencySummary)>,
    /// What was done each second, under a name like "messages stored".
    pub stages: Vec<(&'static str, Vec<Second>)>,
}

impl Report {
    pub fn picture(&self) -> Picture {
        let mut curves = Vec::new();
        let mut stages = Vec::new();
        match self {
            Report::Chat(report) => {
                curves.push(("send to sent", report.send_to_sent.clone()));
                curves.push(("send to receive", report.send_to_receive.clone()));
                curves.push(("send to tick", report.send_to_tick.clone()));
                stages.push(("messages received", report.chat.per_second.clone()));
            }
            Report::Offline(report) => {
                curves.extend(report.send_to_sent.clone().map(|l| ("send to sent", l)));
                curves.extend(report.return_to_receive.clone().map(|l| ("return to receive", l)));
                curves.extend(report.return_to_caught_up.clone().map(|l| ("return to caught up", l)));
                stages.extend(report.store.as_ref().map(|s| ("messages stored", s.per_second.clone())));
                stages.extend(report.drain.as_ref().map(|s| ("messages drained", s.per_second.clone())));
            }
            Report::Inbox(report) => {
                curves.push(("page of the inbox", report.page.clone()));
                stages.push(("pages", report.inbox.per_second.clone()));
            }
            // Connections that do nothing have nothing to draw, and a plot of them is refused before.
            Report::Idle(_) => {}
        }
        Picture { title: self.load_line(), curves, stages }
    }
}

impl Picture {
    /// A page that holds the picture and the table.
    pub fn to_html(&self, table: &str) -> String {
        let (title, svg, table) = (escaped(&self.title), self.to_svg(), escaped(table));
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>bluetick bench: {title}</title>\n<style>\n\
             :root {{ color-scheme: light dark }}\n\
             body {{ margin: 24px; background: #ffffff; color: #1f2937 }}\n\
             pre {{ font: 13px ui-monospace, monospace; overflow-x: auto }}\n\
             svg {{ max-width: 100%; height: auto }}\n\
             @media (prefers-color-scheme: dark) {{ body {{ background: #111827; color: #e5e7eb }} }}\n\
             </style></head>\n<body>\n{svg}<pre>{table}</pre>\n</body></html>\n"
        )
    }

    pub fn to_svg(&self) -> String {
        let panels = 1 + 2 * self.stages.len();
        let height = 40.0 + panels as f64 * (PANEL + BETWEEN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bench\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <text x=\"20\" y=\"30\"><tspan class=\"title\">bluetick bench</tspan><tspan dx=\"14\">{}</tspan></text>\n",
            escaped(&self.title)
        );
        let mut top = 80.0;
        self.draw_percentiles(&mut svg, top);
        for (what, seconds) in &self.stages {
            top += PANEL + BETWEEN;
            let rates: Vec<f64> = seconds.iter().map(|s| s.count as f64).collect();
            draw_seconds(&mut svg, top, &format!("{what} in each second"), &rates, 0);
            top += PANEL + BETWEEN;
            let worst: Vec<f64> = seconds.iter().map(|s| s.worst_ms).collect();
            draw_seconds(&mut svg, top, &format!("longest latency of {what} in each second (ms)"), &worst, 1);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_percentiles(&self, svg: &mut String, top: f64) {
        heading(svg, top, "latency by percentile (ms)");
        let points = || self.curves.iter().flat_map(|(_, latency)| &latency.curve);
        let nines = points().map(|(quantile, _)| nines_of(*quantile)).fold(3.0, f64::max);
        let across = Axis::linear(0.0, nines, LEFT, RIGHT);
        // A tick of the clock is the shortest that can be drawn.
        let least = points().map(|(_, ms)| *ms).filter(|ms| *ms > 0.0).fold(1.0, f64::min);
        let up = Axis::powers(least, points().map(|(_, ms)| *ms).fold(1.0, f64::max), top + PANEL, top);
        up.draw_rows(svg, LEFT, RIGHT);
        for (quantile, name) in [
            (0.5, "p50"),
            (0.9, "p90"),
            (0.99, "p99"),
            (0.999, "p99.9"),
            (0.9999, "p99.99"),
            (0.99999, "p99.999"),
        ] {
            if nines_of(quantile) <= nines + 1e-9 {
                let (x, foot, below) = (across.at(nines_of(quantile)), top + PANEL, top + PANEL + 18.0);
                svg.push_str(&format!(
                    "<path class=\"grid\" d=\"M{x:.1} {top}V{foot}\"/><text class=\"middle\" x=\"{x:.1}\" y=\"{below}\">{name}</text>\n"
                ));
            }
        }
        for (which, (name, latency)) in self.curves.iter().enumerate() {
            let path: Vec<String> = latency
                .curve
                .iter()
                .map(|(quantile, ms)| {
                    format!("{:.1} {:.1}", across.at(nines_of(*quantile)), up.at(ms.max(least)))
                })
                .collect();
            if !path.is_empty() {
                let path = path.join("L");
                svg.push_str(&format!("<path class=\"line\" stroke=\"var(--c{which})\" d=\"M{path}\"/>\n"));
            }
            let (x, y) = (LEFT + 210.0 + 200.0 * which as f64, top - 14.0);
            svg.push_str(&format!(
                "<path class=\"line\" stroke=\"var(--c{which})\" d=\"M{x} {}h24\"/><text x=\"{}\" y=\"{y}\">{name}</text>\n",
                y - 4.0,
                x + 30.0
            ));
        }
    }
}

/// How many nines a quantile has: 0.9 one, 0.99 two.
fn nines_of(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn heading(svg: &mut String, top: f64, text: &str) {
    let y = top - 14.0;
    svg.push_str(&format!("<text class=\"head\" x=\"{LEFT}\" y=\"{y}\">{}</text>\n", escaped(text)));
}

fn draw_seconds(svg: &mut String, top: f64, name: &str, values: &[f64], colour: u8) {
    heading(svg, top, name);
    let up = Axis::round(values.iter().copied().fold(0.0, f64::max), top + PANEL, top);
    up.draw_rows(svg, LEFT, RIGHT);
    let across = Axis::linear(0.0, values.len().max(1) as f64, LEFT, RIGHT);
    let gap = if values.len() > 200 { 0.0 } else { 1.0 };
    for (second, value) in values.iter().enumerate() {
        let (x, next) = (across.at(second as f64), across.at(second as f64 + 1.0));
        let (y, foot) = (up.at(*value), top + PANEL);
        svg.push_str(&format!(
            "<rect fill=\"var(--c{colour})\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
            next - x - gap,
            foot - y
        ));
    }
    let below = top + PANEL + 18.0;
    let step = round_step(values.len() as f64 / 8.0).ceil() as usize;
    for second in (0..=values.len()).step_by(step) {
        let x = across.at(second as f64);
        svg.push_str(&format!("<text class=\"middle\" x=\"{x:.1}\" y=\"{below}\">{second} s</text>\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Meter;

    fn picture() -> Picture {
        let meter = Meter::default();
        (1..5000).for_each(|n| meter.record(n * 1000, n * 3));
        Picture {
            title: "2 pairs & <more>".into(),
            curves: vec![("send to sent", meter.summary()), ("send to tick", meter.summary())],
            stages: vec![("messages received", meter.seconds())],
        }
    }

    /// Whether every element that is opened is closed, in order, and attributes have their quotes.
    fn is_well_formed(xml: &str) -> bool {
        let mut open = Vec::new();
        let mut rest = xml;
        while let Some((text, tail)) = rest.split_once('<') {
            let Some((tag, after)) = tail.split_once('>') else { return false };
            if text.contains('>') || tag.contains('<') || tag.matches('"').count() % 2 != 0 {
                return false;
            }
            match (tag.strip_prefix('/'), tag.ends_with('/') || tag.starts_with('!')) {
                (Some(name), _) if open.pop() != Some(name) => return false,
                (None, false) => open.push(tag.split(' ').next().unwrap_or_default()),
                _ => {}
            }
            rest = after;
        }
        open.is_empty() && rest.trim().is_empty()
    }

    #[test]
    fn a_picture_is_xml_with_a_line_for_each_latency_and_a_bar_for_each_second() {
        let svg = picture().to_svg();
        assert!(is_well_formed(&svg), "{svg}");
        assert!(!is_well_formed("<svg><g></svg>"), "the test sees what is not");
        for wanted in ["send to sent", "send to tick", "p99.9", "messages received", "&amp; &lt;more&gt;"] {
            assert!(svg.contains(wanted), "{wanted} is missing in {svg}");
        }
        assert_eq!(svg.matches("<rect ").count(), 2 * 5, "five seconds, with their count and their worst");
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_page_holds_the_picture_and_the_table() {
        let html = picture().to_html("p50 < p99");
        assert!(is_well_formed(&html), "{html}");
        assert!(html.contains("<svg ") && html.contains("p50 &lt; p99"), "{html}");
    }

    #[test]
    fn nothing_measured_is_drawn_as_nothing() {
        let curves = vec![("send to sent", LatencySummary::default())];
        let empty = Picture { title: String::new(), curves, stages: vec![("messages", Vec::new())] };
        let svg = empty.to_svg();
        assert!(is_well_formed(&svg) && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

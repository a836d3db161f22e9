//! Where values lie in a picture, and the lines that say so.

/// From values to places.
pub struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
    /// Values that get a line and a number.
    marks: Vec<f64>,
}

impl Axis {
    pub fn linear(from: f64, to: f64, start: f64, end: f64) -> Axis {
        Axis { from, to, start, end, logarithmic: false, marks: Vec::new() }
    }

    /// From 0 to a round number that holds `most`, with marks on the way.
    pub fn round(most: f64, start: f64, end: f64) -> Axis {
        let step = round_step(most / 4.0);
        let steps = (most / step - 0.001).ceil().max(1.0);
        let marks = (0..=steps as u32).map(|n| f64::from(n) * step).collect();
        Axis { marks, ..Axis::linear(0.0, steps * step, start, end) }
    }

    /// Over the powers of ten that hold both values.
    pub fn powers(least: f64, most: f64, start: f64, end: f64) -> Axis {
        let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let last = last.max(first + 1);
        let marks = (first..=last).map(|power| 10f64.powi(power)).collect();
        let (from, to) = (f64::from(first), f64::from(last));
        Axis { from, to, start, end, logarithmic: true, marks }
    }

    pub fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.log10() } else { value };
        self.start + (value - self.from) / (self.to - self.from) * (self.end - self.start)
    }

    /// Draws the marks of an axis that goes up.
    pub fn draw_rows(&self, svg: &mut String, left: f64, right: f64) {
        for mark in &self.marks {
            let y = self.at(*mark);
            svg.push_str(&format!(
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>\n",
                left - 8.0,
                y + 4.0,
                number(*mark)
            ));
        }
    }
}

/// The next round number: 1, 2, 2.5 or 5 with zeros or behind them.
pub fn round_step(rough: f64) -> f64 {
    let rough = rough.max(1e-3);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power)
}

/// A number as people write it: no more digits than it has, thousands apart.
fn number(value: f64) -> String {
    if value < 1000.0 {
        let text = format!("{value:.4}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text that may stand between tags.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        let marks = |most| Axis::round(most, 0.0, 1.0).marks.iter().map(|m| number(*m)).collect::<Vec<_>>();
        assert_eq!(marks(37_214.0), ["0", "10,000", "20,000", "30,000", "40,000"]);
        assert_eq!(marks(3.7), ["0", "1", "2", "3", "4"]);
        assert_eq!(marks(24_000.0), ["0", "10,000", "20,000", "30,000"]);
        assert_eq!(marks(0.0).len(), 2, "nothing at all can be drawn too");
    }

    #[test]
    fn values_lie_between_the_ends() {
        let axis = Axis::powers(0.2, 30.0, 100.0, 0.0);
        assert_eq!(axis.marks, [0.1, 1.0, 10.0, 100.0]);
        assert_eq!((axis.at(0.1), axis.at(100.0)), (100.0, 0.0));
        assert_eq!(Axis::round(4.0, 0.0, 8.0).at(2.0), 4.0);
    }
}

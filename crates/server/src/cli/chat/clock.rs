//! Times as people write them. All of them are UTC: nothing here knows the terminal's time zone.

const DAY_MS: u64 = 86_400_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Days since 1970: what day separators compare.
pub(super) fn day(ms: u64) -> u64 {
    ms / DAY_MS
}

/// `14:05`.
pub(super) fn time(ms: u64) -> String {
    let minutes = ms % DAY_MS / 60_000;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `today`, `yesterday` or `3 March 2025`.
pub(super) fn date(ms: u64, now_ms: u64) -> String {
    match day(now_ms).checked_sub(day(ms)) {
        Some(0) => "today".into(),
        Some(1) => "yesterday".into(),
        _ => {
            let (year, month, day) = civil(day(ms));
            format!("{day} {} {year}", MONTHS[month - 1])
        }
    }
}

/// `14:05` of today, `yesterday 14:05`, or the date alone.
pub(super) fn moment(ms: u64, now_ms: u64) -> String {
    match day(now_ms).checked_sub(day(ms)) {
        Some(0) => time(ms),
        Some(1) => format!("yesterday {}", time(ms)),
        _ => date(ms, now_ms),
    }
}

/// Year, month (1–12) and day of the month, by Hinnant's algorithm: days in eras of 400 years that
/// begin in March.
pub(in crate::cli) fn civil(days: u64) -> (u64, usize, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_088, (2024, 12, 31)),
            (20_454, (2026, 1, 1)),
        ] {
            assert_eq!(civil(days), expected);
        }
    }

    #[test]
    fn recent_days_have_names() {
        let now = 20_454 * DAY_MS + 15 * 3_600_000;
        assert_eq!(date(now - DAY_MS / 2, now), "today");
        assert_eq!(date(now - DAY_MS, now), "yesterday");
        assert_eq!(date(0, now), "1 January 1970");
        assert_eq!(moment(now - 60_000, now), "14:59");
        assert_eq!(moment(now - DAY_MS, now), "yesterday 15:00");
        assert_eq!(date(now + 2 * DAY_MS, now), "3 January 2026", "a server's clock may be ahead");
    }
}

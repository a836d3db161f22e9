//! Text as people write it in a chat, made up: common words about as often as they are used, in short sentences, with names,
//! numbers and slips. No sentence is repeated on purpose.

/// By how often they are used, the most common first.
const WORDS: &str = "i you the to a it and is that in of for on have me not be we do can was are so just what with your my at \
    this but get like if no will up out good how there all know they about go see when one think time ok want don't it's \
    i'm need from yes back now he she can't here work come then would could or as today make been too got really going \
    some tomorrow still him her more had say let home that's thanks take right sure did much well our them later two by \
    way only day people please something who sorry give an send where great look maybe week over off night then's lol \
    before call after new car should why first us were house money number last long again put tell feel try car door next \
    morning meet left keep wait help nice find away done price year down always friend guess leave never around enough \
    place love used any better having than things their buy room pick old phone doctor pay ask school happy talk food any \
    anything doing delivery address street minutes hour hours half dinner lunch train station bus driver parcel box size \
    colour blue red black small large condition original photo picture offer discount cash transfer account bank receipt \
    invoice contract kitchen window garden water heating key keys landlord flat rent month months appointment prescription \
    pain medicine dose twice daily headache fever test results blood pressure hospital ward nurse visit insurance card \
    family mother father sister brother kids weekend holiday weather rain sun cold snow airport flight ticket hotel booking \
    reservation table party birthday present cake music concert game match team score coffee tea breakfast market shop bike \
    repair broken screen battery charger laptop keyboard password email document signature deadline meeting project boss \
    customer order refund warranty exchange return serial manual instructions assembly screws shelf lamp chair sofa mattress";
const NAMES: &[&str] =
    &["Anna", "Ben", "Chloe", "Daniel", "Emma", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Katya", "Liam"];

pub struct Writer {
    words: Vec<&'static str>,
    sums: Vec<f64>,
    state: u64,
}

impl Writer {
    pub fn new(seed: u64) -> Writer {
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let mut sum = 0.0;
        // Zipf and Mandelbrot: the nth word is used about as often as 1 / (n + 2.7).
        let sums = (0..words.len())
            .map(|n| {
                sum += 1.0 / (n as f64 + 2.7);
                sum
            })
            .collect();
        Writer { words, sums, state: seed | 1 }
    }

    pub fn chance(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.state ^ self.state >> 31;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }

    fn word(&mut self) -> String {
        match self.chance() % 100 {
            0 | 1 => NAMES[self.chance() as usize % NAMES.len()].to_owned(),
            2 => format!("{}", self.chance() % 200),
            3 => {
                // A slip of the finger.
                let mut word: Vec<char> = self.common().chars().collect();
                let at = self.chance() as usize % word.len();
                word[at] = (b'a' + (self.chance() % 26) as u8) as char;
                word.into_iter().collect()
            }
            _ => self.common().to_owned(),
        }
    }

    fn common(&mut self) -> &'static str {
        let all = self.sums.last().copied().unwrap_or_default();
        let place = (self.chance() % 1_000_000) as f64 / 1_000_000.0 * all;
        self.words[self.sums.partition_point(|sum| *sum < place).min(self.words.len() - 1)]
    }

    /// What one message says: a few sentences at most.
    pub fn message(&mut self) -> String {
        let mut text = String::new();
        for sentence in 0..1 + self.chance() % 3 {
            if sentence > 0 {
                text.push(' ');
            }
            for n in 0..2 + self.chance() % 11 {
                let word = self.word();
                if n > 0 {
                    text.push(' ');
                }
                text.push_str(&word);
            }
            text.push_str([".", "", "?", "!", ""][self.chance() as usize % 5]);
        }
        text
    }

    /// A random UUID, as most clients name messages.
    pub fn uuid(&mut self) -> String {
        let [a, b] = [self.chance() << 24 ^ self.chance(), self.chance() << 24 ^ self.chance()];
        let hex = format!("{a:016x}{b:016x}");
        format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }
}

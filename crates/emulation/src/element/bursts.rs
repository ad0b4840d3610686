use super::{Kind, Loss, Parse};

pub(super) const KIND: Kind = Kind {
    name: "bursts",
    form: "[udp|tcp] bursts PERCENT mean-length NUMBER [seed NUMBER]",
    parse: Parse::OneWay(|words| {
        let share = words.share()?;
        words.expect("mean-length")?;
        let before = words.clone();
        let mean = words.mean_length()?;
        // At least one packet lies between two runs, so a share needs runs of a certain length.
        if share < 1.0 && share / (1.0 - share) > mean {
            let least = share / (1.0 - share);
            return Err(before.expected(&format!("a mean length of at least {least:.2}")));
        }
        Ok(Box::new(Loss::bursts(share, mean, words.seed()?)))
    }),
};

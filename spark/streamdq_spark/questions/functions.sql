-- Functions that the tables share, for both engines. DuckDB gets each as a macro, Spark as a temporary function.

-- Whole hours since 1970, UTC.
CREATE FUNCTION hour_of(ms BIGINT) RETURNS BIGINT RETURN CAST(floor(ms / 3600000e0) AS BIGINT);

-- How much one of two counts is of the other; null of none.
CREATE FUNCTION share(part DOUBLE, whole DOUBLE) RETURNS DOUBLE RETURN part / nullif(whole, 0e0);

-- The host of a consumer: without its process and when that began.
CREATE FUNCTION host_of(consumer STRING) RETURNS STRING RETURN regexp_replace(consumer, '-[0-9]+-[0-9a-z]{10}$', '');

-- The signed distance of a count from its mean, in standard deviations: the root of the deviance of a negative binomial
-- distribution, with a correction for continuity. 0 is not rounded, as nothing is less. The mean is above 0.
CREATE FUNCTION x_log(x DOUBLE, mean DOUBLE) RETURNS DOUBLE RETURN CASE WHEN x > 0 THEN x * ln(x / mean) ELSE 0e0 END;
CREATE FUNCTION nearer(n DOUBLE, mean DOUBLE) RETURNS DOUBLE RETURN
    CASE WHEN n = 0 THEN 0e0 WHEN n > mean THEN greatest(n - 0.5e0, mean) ELSE least(n + 0.5e0, mean) END;
CREATE FUNCTION count_deviance(x DOUBLE, mean DOUBLE, size DOUBLE) RETURNS DOUBLE RETURN
    2 * (x_log(x, mean) - (x + size) * ln((x + size) / (mean + size)));
CREATE FUNCTION count_off(n DOUBLE, mean DOUBLE, size DOUBLE) RETURNS DOUBLE RETURN
    sign(n - mean) * sqrt(greatest(count_deviance(nearer(n, mean), mean, size), 0e0));

-- The same of jobs done, for which two figures are expected, of which one is nearer: 0 between them.
CREATE FUNCTION done_off(n DOUBLE, expected DOUBLE, today DOUBLE, nearer_usual DOUBLE, size DOUBLE) RETURNS DOUBLE RETURN
    CASE WHEN nearer_usual IS NULL THEN NULL
         WHEN n BETWEEN least(expected, today) AND greatest(expected, today) THEN 0e0
         WHEN n = 0 AND nearer_usual <= 0.01 THEN 0e0
         ELSE count_off(n, greatest(nearer_usual, 0.01e0), size) END;

-- The same of a share, by a binomial distribution: n of so many. 0 if it is not more than the mean.
CREATE FUNCTION share_deviance(x DOUBLE, mean DOUBLE, of DOUBLE) RETURNS DOUBLE RETURN
    2 * (x_log(x, mean) + x_log(of - x, nullif(of - mean, 0e0)));
CREATE FUNCTION share_off(n DOUBLE, mean DOUBLE, of DOUBLE) RETURNS DOUBLE RETURN
    CASE WHEN mean IS NULL THEN NULL WHEN n <= mean THEN 0e0
         ELSE sqrt(greatest(share_deviance(greatest(n - 0.5e0, mean), mean, of), 0e0)) END;

-- Whether such a count, or such a share of the attempts of so many hours, is unusual: its score is beyond the limit, and the
-- difference matters.
CREATE FUNCTION is_odd_count(score DOUBLE, n DOUBLE, usual DOUBLE) RETURNS BOOLEAN RETURN
    abs(score) > 4 AND abs(n - usual) >= 0.1e0 * usual AND (n < usual OR n >= usual + 5);
CREATE FUNCTION is_odd_share(score DOUBLE, n DOUBLE, usual DOUBLE, attempts DOUBLE, hours BIGINT) RETURNS BOOLEAN RETURN
    score > CASE WHEN hours = 1 THEN 3.7e0 WHEN n >= 2.5e0 * usual THEN 2.9e0 ELSE 3.5e0 END
    AND n >= usual + 5 AND n >= usual + 0.01e0 * attempts;

-- The usual share of an hour of the week, of which n of so many attempts are known: between the mean of the topic's hours and its
-- own share, by how much those of the hours vary beside chance (Bühlmann, Experience Rating and Credibility, 1967). That variance is
-- found from sums over these hours: of squares of n, of n times attempts, of squares of attempts, and of attempts.
CREATE FUNCTION beside_chance(mean DOUBLE, squares DOUBLE, products DOUBLE, of_squares DOUBLE, whole DOUBLE) RETURNS DOUBLE RETURN
    greatest(squares - 2 * mean * products + mean * mean * of_squares - mean * (1 - mean) * whole, 0e0) / nullif(of_squares, 0e0);
CREATE FUNCTION usual_share(n DOUBLE, of DOUBLE, mean DOUBLE, variance DOUBLE) RETURNS DOUBLE RETURN
    coalesce(mean + (n - of * mean) * variance / nullif(of * variance + mean * (1 - mean), 0e0), mean, 0e0);

-- The complement of the error function for x >= 0, off by less than 1.2e-7 of it (Press et al., Numerical Recipes, chapter
-- 6.2).
CREATE FUNCTION erfc_series(t DOUBLE) RETURNS DOUBLE RETURN
    ((((((((0.17087277e0 * t - 0.82215223e0) * t + 1.48851587e0) * t - 1.13520398e0) * t + 0.27886807e0) * t
    - 0.18628806e0) * t + 0.09678418e0) * t + 0.37409196e0) * t + 1.00002368e0) * t;
CREATE FUNCTION erfc_of(x DOUBLE, t DOUBLE) RETURNS DOUBLE RETURN t * exp(-x * x - 1.26551223e0 + erfc_series(t));
CREATE FUNCTION erfc(x DOUBLE) RETURNS DOUBLE RETURN erfc_of(x, 1 / (1 + x / 2));

-- How likely it is to be so far off or more by nothing but chance. by_chance: the variance if all attempts were independent;
-- by_hour: with hours as clusters, as attempts of one hour are alike (Cochran, Sampling Techniques, 1977); free: its degrees
-- of freedom, at least 1. If by_hour is more, the distribution is Student's, by Wallace's approximation (Bounds on Normal
-- Approximations to Student's and the Chi-Square Distributions, 1959). Null if both variances are 0.
CREATE FUNCTION as_normal(z DOUBLE, free DOUBLE) RETURNS DOUBLE RETURN
    sqrt(free * ln(1 + z * z / free)) * (8 * free + 1) / (8 * free + 3);
CREATE FUNCTION two_sided(off DOUBLE, by_chance DOUBLE, by_hour DOUBLE, free DOUBLE) RETURNS DOUBLE RETURN
    CASE WHEN by_hour > by_chance THEN erfc(as_normal(abs(off) / sqrt(nullif(by_hour, 0e0)), free) / sqrt(2e0))
         WHEN by_chance > 0 THEN erfc(abs(off) / sqrt(nullif(by_chance, 0e0)) / sqrt(2e0)) END;
